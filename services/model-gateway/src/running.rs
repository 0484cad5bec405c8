//! The calls that this replica runs now, and the cancels that reach them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bus::Bus;
use contract::ids::CallAttempt;
use contract::subject::SessionKey;
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

/// Pause before the cancels are subscribed again.
const SUBSCRIBE_PAUSE: Duration = Duration::from_secs(1);

type Name = (SessionKey, CallAttempt);

/// Running calls by name. A lock since cancels come from elsewhere; it is held for a look only.
#[derive(Debug, Clone, Default)]
pub struct Running(Arc<Mutex<BTreeMap<Name, CancellationToken>>>);

/// A call that runs; dropping it ends that.
#[derive(Debug)]
pub struct Entry {
    running: Running,
    name: Name,
    cancelled: CancellationToken,
}

impl Running {
    /// Enters a call.
    pub fn enter(&self, key: &SessionKey, call: &CallAttempt) -> Entry {
        let (name, cancelled) = ((key.clone(), call.clone()), CancellationToken::new());
        self.with(|calls| calls.insert(name.clone(), cancelled.clone()));
        Entry { running: self.clone(), name, cancelled }
    }

    /// Cancels a call; `false` when it does not run here.
    pub fn cancel(&self, key: SessionKey, call: CallAttempt) -> bool {
        let token = self.with(|calls| calls.get(&(key, call)).cloned());
        token.inspect(CancellationToken::cancel).is_some()
    }

    /// Follows the cancels of the fleet. A lost one costs time only: every running call looks at the log too.
    pub async fn follow(self, bus: Bus, end: CancellationToken) {
        while !end.is_cancelled() {
            let listen = async {
                match bus.cancels().await {
                    Ok(cancels) => {
                        cancels
                            .for_each(|(key, call)| {
                                self.cancel(key, call);
                                std::future::ready(())
                            })
                            .await;
                    }
                    Err(error) => tracing::warn!(%error, "cancels cannot be heard"),
                }
                tokio::time::sleep(SUBSCRIBE_PAUSE).await;
            };
            tokio::select! {
                () = end.cancelled() => {}
                () = listen => {}
            }
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<Name, CancellationToken>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Entry {
    /// Returns when the call is no longer wanted.
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.running.with(|calls| calls.remove(&self.name));
    }
}
