//! Retries of reads that settle a doubt: how often, and after which pauses.

use std::time::Duration;

use contract::backoff::Backoff;

/// Rounds in which one doubt may be settled, before the outcome is reported as unknown.
pub(crate) const ROUNDS_MAX: u32 = 8;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(500));

/// The pause before round `round` (from 1), spread by `salt` so that two writers do not collide again.
pub(crate) fn pause(round: u32, salt: &str) -> Duration {
    BACKOFF.spread(round, salt)
}

/// Sleeps for the [`pause`] before round `round`.
pub(crate) async fn wait(round: u32, salt: &str) {
    tokio::time::sleep(pause(round, salt)).await;
}
