//! Limits the rate at which the messages of an MCP server are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use service::pace::{self, Rate};

use crate::server_name::ServerName;

/// On average 500 messages or 33 MB a second, and bursts of 1,000 messages or 66 MB.
const RATE: Rate =
    Rate { per_message: Duration::from_millis(2), bytes_per_message: 64 << 10, burst: Duration::from_secs(2) };
/// Shorter pauses are not logged.
const LOGGED_PAUSE: Duration = Duration::from_millis(200);

/// Rate limit of one server, over all of its streams.
#[derive(Debug, Clone)]
pub(super) struct ReadPace {
    server: ServerName,
    inner: Arc<pace::Pace>,
    is_logged: Arc<AtomicBool>,
}

impl ReadPace {
    pub(super) fn new(server: ServerName) -> Self {
        Self { server, inner: Arc::new(pace::Pace::new(RATE)), is_logged: Arc::default() }
    }

    /// Counts what was read; returns the pause before the next read. The first long pause is logged.
    pub(super) fn count(&self, messages: usize, bytes: usize) -> Duration {
        let pause = self.inner.count(messages, bytes);
        if pause > LOGGED_PAUSE && !self.is_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!(server = %self.server, "an MCP server says too much: it is read more slowly from now on");
        }
        pause
    }
}
