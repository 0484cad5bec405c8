//! Waiting with a deadline: for a condition that is checked again and again, or for a future.

use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::time::{Instant, sleep};

/// Deadline of every wait: a way for a test to end, and no statement. A busy machine may need a good part of it.
pub const PATIENCE: Duration = Duration::from_mins(3);
/// Pause between two checks of a condition.
const POLL_EVERY: Duration = Duration::from_millis(10);

/// Returns when a condition holds; fails after [`PATIENCE`] with an error that names it.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        ensure!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        sleep(POLL_EVERY).await;
    }
    Ok(())
}

/// Awaits a future; fails after [`PATIENCE`] with an error that names it.
pub async fn soon<T>(what: &str, comes: impl Future<Output = T>) -> anyhow::Result<T> {
    tokio::time::timeout(PATIENCE, comes).await.with_context(|| format!("not within {PATIENCE:?}: {what}"))
}
