//! The clock of the edge.

use std::time::{SystemTime, UNIX_EPOCH};

use contract::Timestamp;

/// Returns the current time in whole milliseconds.
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
