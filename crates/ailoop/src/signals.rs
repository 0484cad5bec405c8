//! Ctrl-C and SIGTERM, as often as they come.

use contract::ErrorCode;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Hears that the command is asked to end.
#[derive(Debug)]
pub struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    /// Listens from now on.
    pub fn listen() -> Result<Self, Failure> {
        let hear = |kind| {
            signal(kind).map_err(|error| Failure::new(ErrorCode::Internal, format!("signals cannot be heard: {error}")))
        };
        Ok(Self { interrupt: hear(SignalKind::interrupt())?, terminate: hear(SignalKind::terminate())? })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Does a thing, unless it is interrupted first.
    pub async fn unless<T>(&mut self, thing: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = thing => Some(done),
            () = self.next() => None,
        }
    }
}
