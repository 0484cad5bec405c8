//! A client's life: alive, frozen or dead, and what each lets it do.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;

use super::{Action, Fault, MemoryServer, Op};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Alive,
    Frozen,
    Dead,
}

/// Power over a client's life.
#[derive(Debug, Clone)]
pub struct Life {
    pub(super) client: Arc<Shared>,
}

impl Life {
    /// Kills the client: no operation of it ever returns again, and its subscriptions are gone.
    pub fn kill(&self) {
        self.client.kill();
    }

    /// Freezes the client: its operations return after [`Life::thaw`]; its subscriptions stay.
    pub fn freeze(&self) {
        self.client.change(State::Frozen);
    }

    /// Lets a frozen client go on.
    pub fn thaw(&self) {
        self.client.change(State::Alive);
    }

    /// Whether it was killed, by [`Life::kill`] or by a fault.
    pub fn is_dead(&self) -> bool {
        *self.client.state.borrow() == State::Dead
    }
}

/// What a client's parts share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) server: MemoryServer,
    pub(super) name: String,
    state: watch::Sender<State>,
}

impl Shared {
    pub(super) fn new(server: MemoryServer, name: &str) -> Self {
        Self { server, name: name.to_owned(), state: watch::Sender::new(State::Alive) }
    }

    /// Runs an operation as far as the client's life allows.
    pub(super) async fn guard<T>(&self, operation: impl Future<Output = T>) -> T {
        let mut state = self.state.subscribe();
        tokio::pin!(operation);
        loop {
            let now = *state.borrow_and_update();
            match now {
                State::Alive => tokio::select! {
                    biased;
                    _ = state.changed() => {}
                    out = &mut operation => return out,
                },
                // The sender lives in `self`, so that this cannot fail.
                State::Frozen => drop(state.changed().await),
                State::Dead => std::future::pending().await,
            }
        }
    }

    pub(super) fn fault(&self, action: Action, subject: &str) -> Fault {
        self.server.inner.faults.on(Op { client: &self.name, action, subject })
    }

    pub(super) fn kill(&self) {
        self.state.send_replace(State::Dead);
        self.server.lock().core.disconnect(&self.name);
    }

    fn change(&self, to: State) {
        self.state.send_if_modified(|state| {
            let change = *state != State::Dead && *state != to;
            if change {
                *state = to;
            }
            change
        });
    }
}
