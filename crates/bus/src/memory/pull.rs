//! A pull: items as they become available, in tokio's time.

use std::sync::Arc;

use contract::streams::Queue;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::MemoryServer;
use super::consumer::Given;
use super::life::Shared;
use crate::{BusError, Delivery, Stored};

pub(super) struct Pull {
    pub(super) client: Arc<Shared>,
    pub(super) queue: Queue,
    pub(super) left: usize,
    pub(super) until: Instant,
    pub(super) stop: CancellationToken,
    pub(super) restarts: u64,
}

/// What a look at the queue shows.
enum Look {
    Item(Delivery),
    /// Nothing before this instant, unless something changes.
    Nothing(Option<Instant>),
    Restarted,
}

impl Pull {
    pub(super) fn stream(self) -> BoxStream<'static, Result<Delivery, BusError>> {
        futures::stream::unfold(Some(self), |pull| async move {
            let mut pull = pull?;
            let client = pull.client.clone();
            match client.guard(pull.next()).await? {
                Ok(delivery) => Some((Ok(delivery), Some(pull))),
                Err(error) => Some((Err(error), None)),
            }
        })
        .boxed()
    }

    async fn next(&mut self) -> Option<Result<Delivery, BusError>> {
        if self.left == 0 {
            return None;
        }
        let server = self.client.server.clone();
        let changed = server.inner.changed.get(&self.queue)?;
        loop {
            // Before the look, so that no change falls between the two.
            let woken = changed.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            if self.stop.is_cancelled() {
                return None;
            }
            let wake = match self.look(&server) {
                Look::Item(delivery) => {
                    self.left -= 1;
                    return Some(Ok(delivery));
                }
                Look::Restarted => return Some(Err(BusError::Unavailable("the server went away".to_owned()))),
                Look::Nothing(wake) => wake.map_or(self.until, |wake| wake.min(self.until)),
            };
            if Instant::now() >= self.until {
                return None;
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                () = woken => {}
                () = tokio::time::sleep_until(wake) => {}
            }
        }
    }

    fn look(&self, server: &MemoryServer) -> Look {
        let now = server.now();
        let mut state = server.lock();
        if state.restarts != self.restarts {
            return Look::Restarted;
        }
        let Some(store) = state.streams.get_mut(&self.queue.stream()) else { return Look::Nothing(None) };
        store.fire(now);
        if let Some((Given { seq, delivered, number }, stored)) = store.give(Instant::now()) {
            let ack = format!("{}.{seq}.{delivered}.{number}", self.queue.durable());
            let Stored { subject, stored_at, headers, payload, .. } = stored;
            let waited = now.since(stored_at);
            return Look::Item(Delivery {
                subject,
                seq,
                delivered,
                stored_at,
                waited,
                connected_for: std::time::Duration::MAX,
                headers,
                payload,
                ack,
            });
        }
        let due = store.next_due().map(|at| Instant::now() + at.since(now));
        Look::Nothing(due.into_iter().chain(store.consumer.next_deadline()).min())
    }
}
