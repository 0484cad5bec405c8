//! The time of day, as an argument: only `main` owns the machine's clock.

use std::time::{SystemTime, UNIX_EPOCH};

use contract::Timestamp;

/// A source of the time of day.
pub trait Clock: Send + Sync + 'static {
    /// The time of day now.
    fn now(&self) -> Timestamp;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::default().after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}
