//! Ctrl-C and SIGTERM.

use contract::ErrorCode;
use terminal::failure::CommandFailure;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives the signals that ask the command to end.
#[derive(Debug)]
pub(crate) struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

/// A signal that asks the command to end, or to stop what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interruption {
    /// SIGINT, by which a person interrupts with Ctrl-C.
    Interrupt,
    /// SIGTERM, which asks the process to end.
    Terminate,
}

impl Interrupts {
    pub(crate) fn listen() -> Result<Self, CommandFailure> {
        let subscribe = |kind| {
            signal(kind).map_err(|error| {
                CommandFailure::new(ErrorCode::Internal, format!("signals cannot be received: {error}"))
            })
        };
        Ok(Self { interrupt: subscribe(SignalKind::interrupt())?, terminate: subscribe(SignalKind::terminate())? })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Waits for the next signal, and says which one it is.
    pub(crate) async fn next_kind(&mut self) -> Interruption {
        tokio::select! {
            _ = self.interrupt.recv() => Interruption::Interrupt,
            _ = self.terminate.recv() => Interruption::Terminate,
        }
    }

    /// Runs a future until a signal comes; returns none if the signal was first.
    pub(crate) async fn run_until_interrupted<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            output = future => Some(output),
            () = self.next() => None,
        }
    }
}
