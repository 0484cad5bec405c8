//! Retries: how often, and after which pauses.

use std::time::Duration;

use contract::backoff::Backoff;

use crate::BusError;

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

/// Repeats an operation while its error may pass, up to `rounds` times in all, each time after a longer pause.
pub(crate) async fn repeat<T, F>(
    rounds: u32,
    salt: &str,
    may_pass: impl Fn(&BusError) -> bool,
    operation: impl Fn() -> F,
) -> Result<T, BusError>
where
    F: Future<Output = Result<T, BusError>>,
{
    let mut round = 1;
    loop {
        match operation().await {
            Err(error) if round < rounds && may_pass(&error) => wait(round, salt).await,
            ended => return ended,
        }
        round += 1;
    }
}
