//! A pull: items as they become available, in tokio's time.

use std::sync::Arc;
use std::time::Duration;

use bus::{BusError, Delivery, Stored};
use contract::streams::Queue;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::MemoryServer;
use crate::consumer::NumberedDelivery;
use crate::lifecycle::ClientState;

/// One pull request of a client.
pub(crate) struct Pull {
    pub(crate) client: Arc<ClientState>,
    pub(crate) queue: Queue,
    pub(crate) left: usize,
    pub(crate) until: Instant,
    pub(crate) stop: CancellationToken,
    /// The connection over which the pull began.
    pub(crate) generation: u64,
}

/// The next step of a pull.
enum Next {
    Delivered(Delivery),
    /// Nothing before this instant, unless the stream changes.
    Wait(Option<Instant>),
    /// The server restarted, which ends the pull.
    Restarted,
}

impl Pull {
    pub(crate) fn into_stream(self) -> BoxStream<'static, Result<Delivery, BusError>> {
        futures::stream::unfold(Some(self), |pull| async move {
            let mut pull = pull?;
            let client = pull.client.clone();
            match client.run_while_alive(pull.next()).await? {
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
            // Registered before the stream is read, so that no change falls between the two.
            let woken = changed.notified();
            tokio::pin!(woken);
            woken.as_mut().enable();
            if self.stop.is_cancelled() {
                return None;
            }
            let wake = match self.poll(&server) {
                Next::Delivered(delivery) => {
                    self.left -= 1;
                    return Some(Ok(delivery));
                }
                Next::Restarted => return Some(Err(BusError::Unavailable("the server restarted".to_owned()))),
                Next::Wait(wake) => wake.map_or(self.until, |wake| wake.min(self.until)),
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

    fn poll(&self, server: &MemoryServer) -> Next {
        let now = server.now();
        let mut state = server.lock();
        let connected_for = state.connected_at.map_or(Duration::MAX, |at| at.elapsed());
        if state.generation != self.generation {
            return Next::Restarted;
        }
        let store = state.stream(self.queue.stream(), now);
        if let Some((NumberedDelivery { seq, delivered, number }, stored)) = store.next_delivery(Instant::now()) {
            let ack = format!("{}.{seq}.{delivered}.{number}", self.queue.durable());
            let Stored { subject, stored_at, headers, payload, .. } = stored;
            let waited = now.since(stored_at);
            return Next::Delivered(Delivery {
                subject,
                seq,
                delivered,
                stored_at,
                waited,
                connected_for,
                generation: self.generation,
                headers,
                payload,
                ack,
            });
        }
        let due = store.next_due().map(|at| Instant::now() + at.since(now));
        Next::Wait(due.into_iter().chain(store.consumer.next_deadline()).min())
    }
}
