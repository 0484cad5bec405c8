//! How doubts are asked about again: how often, and after which pauses.

use std::time::Duration;

use contract::backoff::Backoff;

/// Rounds in which one doubt may be settled, before the caller is told that nobody knows.
pub(crate) const ROUNDS_MAX: u32 = 8;

const BACKOFF: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(500));

/// The pause before round `round` (from 1), spread by `salt` so that two writers part.
pub(crate) fn pause(round: u32, salt: &str) -> Duration {
    BACKOFF.spread(round, salt)
}

/// Sleeps for [`pause`].
pub(crate) async fn wait(round: u32, salt: &str) {
    tokio::time::sleep(pause(round, salt)).await;
}
