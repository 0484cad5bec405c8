//! The time of day, as an argument: only `main` owns the machine's clock.

use std::time::{SystemTime, UNIX_EPOCH};

use contract::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::default().after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}
