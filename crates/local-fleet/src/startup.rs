//! Helpers for the start of every fleet in this process.

use std::fmt;
use std::time::Duration;

use contract::{Coded, ErrorCode};
use service::health::Readiness;
use terminal::failure::CommandFailure;
use tokio::time::{Instant, sleep};

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

/// Makes the failure of a service that does not start or go on. Its code is that of the first cause that has one.
pub fn service_failure(error: &anyhow::Error) -> CommandFailure {
    let code_of = |cause: &(dyn std::error::Error + 'static)| {
        let config = cause.downcast_ref::<configuration::ConfigError>().map(Coded::code);
        let bus = cause.downcast_ref::<bus::BusError>().map(Coded::code);
        let edge = cause.downcast_ref::<edge::EdgeStartError>().map(Coded::code);
        let host = cause.downcast_ref::<tool_host::HostError>().map(Coded::code);
        config.or(bus).or(edge).or(host)
    };
    CommandFailure::new(error.chain().find_map(code_of).unwrap_or(ErrorCode::Internal), format!("{error:#}"))
}

pub(super) fn internal_failure(error: &dyn fmt::Display) -> CommandFailure {
    CommandFailure::new(ErrorCode::Internal, error.to_string())
}
