//! Whether a call is still wanted, and whether it was answered already: the streams say so.

use std::time::Duration;

use bus::{Bus, BusError};
use contract::limits::WORKER_CHECK_EVERY;

use crate::job::{Job, result_id};
use contract::command::Verb;

/// Returns when the log no longer lists the call as open. Reads that fail or are stale prove nothing.
pub async fn closed(bus: &Bus, job: &Job) {
    loop {
        tokio::time::sleep(WORKER_CHECK_EVERY).await;
        match bus.is_closed(&job.key, &job.call, job.meta().slot).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => tracing::debug!(session = %job.key, call = %job.call, %error, "the log cannot be read"),
        }
    }
}

/// Whether a result of this attempt waits for the loop already: then the call was made and paid for.
pub async fn is_answered(bus: &Bus, job: &Job) -> Result<bool, BusError> {
    let Some(id) = result_id(&job.call) else { return Ok(false) };
    bus.waits(&job.key, &[Verb::ModelFinished, Verb::ModelFailed], &id).await
}

/// How long a call that cannot start now is handed back, since its session is paused or the bus is away: short at first, so
/// that it begins soon after a short while.
pub fn pause(delivered: u64) -> Duration {
    const FIRST: Duration = Duration::from_millis(500);
    const LONGEST: Duration = Duration::from_secs(5);
    let doublings = u32::try_from(delivered.saturating_sub(1).min(8)).unwrap_or(8);
    (FIRST * 2_u32.pow(doublings)).min(LONGEST)
}
