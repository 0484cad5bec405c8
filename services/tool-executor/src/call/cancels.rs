//! Which running calls can be called off, and by whom they are found.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bus::Bus;
use contract::ids::CallAttempt;
use contract::subject::SessionKey;
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

/// Pause before a lost subscription is made again; until then the log tells that a call is closed.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

type Id = (SessionKey, CallAttempt);

/// The calls that run in this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cancels(Arc<Mutex<Places>>);

#[derive(Debug, Default)]
struct Places {
    last: u64,
    /// By call: each delivery of it has a place of its own.
    calls: HashMap<Id, Vec<(u64, CancellationToken)>>,
}

/// A call's place among them, given up when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    cancels: Cancels,
    id: Id,
    number: u64,
    /// Cancelled when the call is called off.
    pub(crate) token: CancellationToken,
}

impl Cancels {
    /// Takes a place, best before the log is asked: then no cancel is missed.
    pub(crate) fn enter(&self, key: &SessionKey, call: &CallAttempt) -> Place {
        let (id, token) = ((key.clone(), call.clone()), CancellationToken::new());
        let number = self.with(|places| {
            places.last += 1;
            // Whoever has the place already is cancelled with us: it keeps its token.
            places.calls.entry(id.clone()).or_default().push((places.last, token.clone()));
            places.last
        });
        Place { cancels: self.clone(), id, number, token }
    }

    /// Listens until it is told to end.
    pub(crate) async fn listen(self, bus: Bus, ending: CancellationToken) {
        let listen = async {
            loop {
                match bus.cancels().await {
                    Ok(mut heard) => {
                        while let Some(id) = heard.next().await {
                            self.cancel(&id);
                        }
                    }
                    Err(error) => tracing::warn!(%error, "cancels are not heard"),
                }
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        };
        let _ended = ending.run_until_cancelled(listen).await;
    }

    fn cancel(&self, id: &Id) {
        self.with(|places| {
            for (_, token) in places.calls.get(id).into_iter().flatten() {
                token.cancel();
            }
        });
    }

    // A lock, since it is held for one access to the map only.
    fn with<T>(&self, access: impl FnOnce(&mut Places) -> T) -> T {
        access(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.cancels.with(|places| {
            if let Entry::Occupied(mut entry) = places.calls.entry(self.id.clone()) {
                entry.get_mut().retain(|(number, _)| *number != self.number);
                if entry.get().is_empty() {
                    entry.remove();
                }
            }
        });
    }
}
