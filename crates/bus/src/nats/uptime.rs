//! How long the current connection has been up, or away.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// When the current connection was made, or the last one broke; shared by all that look at it.
#[derive(Debug, Clone)]
pub(super) struct Uptime(Arc<Mutex<Instant>>);

impl Default for Uptime {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Uptime {
    /// Notes that a connection was made, or broke, just now.
    pub(super) fn restart(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// How long the current connection has been up; how long there has been none where the last one broke.
    pub(super) fn elapsed(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}
