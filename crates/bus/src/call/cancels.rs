//! The running calls of this process, and their cancellation.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::ids::CallAttempt;
use contract::subject::SessionKey;
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::Bus;

/// Pause before a lost subscription is renewed; until then the log shows that a call is closed.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

type Id = (SessionKey, CallAttempt);

/// The calls that run in this process.
#[derive(Debug, Clone, Default)]
pub(super) struct Cancels(Arc<Mutex<Registrations>>);

#[derive(Debug, Default)]
struct Registrations {
    last: u64,
    /// By call: each delivery of it is registered by itself.
    calls: HashMap<Id, Vec<(u64, CancellationToken)>>,
}

/// A registered call; dropping this ends it.
#[derive(Debug)]
pub(super) struct Registration {
    cancels: Cancels,
    id: Id,
    number: u64,
    /// Cancelled by a cancel of the call.
    pub(super) token: CancellationToken,
}

impl Cancels {
    /// Registers a call; do so before the log is read, so that no cancel is missed.
    pub(super) fn enter(&self, key: &SessionKey, call: &CallAttempt) -> Registration {
        let (id, token) = ((key.clone(), call.clone()), CancellationToken::new());
        let number = self.with(|registrations| {
            registrations.last += 1;
            // Another delivery of it keeps its own token.
            registrations.calls.entry(id.clone()).or_default().push((registrations.last, token.clone()));
            registrations.last
        });
        Registration { cancels: self.clone(), id, number, token }
    }

    /// Cancels calls until the future is dropped.
    pub(super) async fn listen(self, bus: Bus) {
        loop {
            match bus.cancels().await {
                Ok(mut cancelled) => {
                    while let Some(id) = cancelled.next().await {
                        self.cancel(&id);
                    }
                }
                Err(error) => tracing::warn!(%error, "cancels cannot be subscribed to"),
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    fn cancel(&self, id: &Id) {
        self.with(|registrations| {
            for (_, token) in registrations.calls.get(id).into_iter().flatten() {
                token.cancel();
            }
        });
    }

    // A lock, since it is held for one access to the map only.
    fn with<T>(&self, access: impl FnOnce(&mut Registrations) -> T) -> T {
        access(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.cancels.with(|registrations| {
            if let Entry::Occupied(mut entry) = registrations.calls.entry(self.id.clone()) {
                entry.get_mut().retain(|(number, _)| *number != self.number);
                if entry.get().is_empty() {
                    entry.remove();
                }
            }
        });
    }
}
