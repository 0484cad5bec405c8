//! The wish to end: SIGTERM or SIGINT.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code after a second signal, as shells give for SIGINT.
const EXIT_NOW: i32 = 130;

/// Told once, heard by everybody who waits.
#[derive(Debug, Clone, Default)]
pub struct Shutdown(CancellationToken);

/// Listens from now on. The first signal asks to end; a second one ends the process at once.
pub fn on_signal() -> Shutdown {
    let shutdown = Shutdown::default();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        match signal(kind) {
            Ok(signals) => listen(signals, shutdown.clone()),
            Err(error) => tracing::error!(?kind, %error, "signals cannot be heard"),
        }
    }
    shutdown
}

impl Shutdown {
    /// Returns when the process is asked to end.
    pub async fn wait(&self) {
        self.0.cancelled().await;
    }

    /// Asks to end, as a signal does.
    pub fn trigger(&self) {
        self.0.cancel();
    }

    /// The token behind it, for work that ends with the process.
    pub fn token(&self) -> CancellationToken {
        self.0.clone()
    }
}

#[allow(clippy::disallowed_methods, reason = "it lives as long as the process, and must be able to end it")]
fn listen(mut signals: tokio::signal::unix::Signal, shutdown: Shutdown) {
    tokio::spawn(async move {
        while signals.recv().await.is_some() {
            if shutdown.0.is_cancelled() {
                tracing::warn!("second signal: ending at once");
                std::process::exit(EXIT_NOW);
            }
            tracing::info!("asked to end");
            shutdown.trigger();
        }
    });
}
