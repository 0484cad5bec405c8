//! The lifecycle of a simulated client: running, frozen or dead, and which operations each state lets pass.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;

use crate::{Action, Fault, MemoryServer, Operation};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Frozen,
    Dead,
}

/// Control over a client: kill it, freeze it, let it go on.
#[derive(Debug, Clone)]
pub struct ClientLifecycle {
    pub(crate) client: Arc<ClientState>,
}

impl ClientLifecycle {
    /// Kills the client: none of its operations ever returns, and its subscriptions are removed.
    pub fn kill(&self) {
        self.client.kill();
    }

    /// Freezes the client: its operations return after [`ClientLifecycle::thaw`], and its subscriptions stay.
    pub fn freeze(&self) {
        self.client.change(Phase::Frozen);
    }

    /// Lets a frozen client go on.
    pub fn thaw(&self) {
        self.client.change(Phase::Running);
    }

    /// Whether the client was killed, by [`ClientLifecycle::kill`] or by a fault.
    pub fn is_dead(&self) -> bool {
        *self.client.phase.borrow() == Phase::Dead
    }
}

/// State that the transport, the subscriptions and the pulls of one client share.
#[derive(Debug)]
pub(crate) struct ClientState {
    pub(crate) server: MemoryServer,
    pub(crate) name: String,
    phase: watch::Sender<Phase>,
}

impl ClientState {
    pub(crate) fn new(server: MemoryServer, name: &str) -> Self {
        Self { server, name: name.to_owned(), phase: watch::Sender::new(Phase::Running) }
    }

    /// Runs an operation while the client runs: it stops with a frozen client, and never returns of a dead one.
    pub(crate) async fn run_while_alive<T>(&self, operation: impl Future<Output = T>) -> T {
        let mut phase = self.phase.subscribe();
        tokio::pin!(operation);
        loop {
            let now = *phase.borrow_and_update();
            match now {
                Phase::Running => tokio::select! {
                    biased;
                    _ = phase.changed() => {}
                    out = &mut operation => return out,
                },
                // `self` owns the sender, so this cannot fail.
                Phase::Frozen => drop(phase.changed().await),
                Phase::Dead => std::future::pending().await,
            }
        }
    }

    pub(crate) fn fault(&self, action: Action, subject: &str) -> Fault {
        self.server.inner.faults.decide(Operation { client: &self.name, action, subject })
    }

    pub(crate) fn kill(&self) {
        self.phase.send_replace(Phase::Dead);
        self.server.lock().core.disconnect(&self.name);
    }

    fn change(&self, to: Phase) {
        self.phase.send_if_modified(|phase| {
            let is_changed = *phase != Phase::Dead && *phase != to;
            if is_changed {
                *phase = to;
            }
            is_changed
        });
    }
}
