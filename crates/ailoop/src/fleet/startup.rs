//! Helpers for the start of every fleet in this process.

use std::fmt;
use std::time::Duration;

use contract::ErrorCode;
use service::health::Readiness;
use tokio::time::{Instant, sleep};

use crate::failure::CommandFailure;

/// Longest wait until all services are ready.
const READY_MAX: Duration = Duration::from_secs(20);
/// Pause between checks of the readiness.
const READY_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until all services are ready.
pub(super) async fn wait_until_ready(readiness: &Readiness) -> Result<(), CommandFailure> {
    let deadline = Instant::now() + READY_MAX;
    while !readiness.is_ready() {
        if Instant::now() > deadline {
            let waiting: Vec<_> = readiness.waiting().collect();
            let message = format!("the fleet is not ready: it waits for {}", waiting.join(", "));
            return Err(CommandFailure::new(ErrorCode::Unavailable, message).help("set RUST_LOG=info to see why"));
        }
        sleep(READY_CHECK_INTERVAL).await;
    }
    Ok(())
}

pub(super) fn internal_failure(error: &dyn fmt::Display) -> CommandFailure {
    CommandFailure::new(ErrorCode::Internal, error.to_string())
}
