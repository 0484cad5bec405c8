//! Time at which this process last lost its connection: the client of a tool may have lost its own at the same time,
//! and may not be back yet.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Longest time that a client takes to reconnect after a server went away: some wait for two seconds between two tries.
pub(crate) const BACK_WITHIN: Duration = Duration::from_secs(5);
/// The same where this process saw no loss: the process of a tool may be replaced, or its credential or server. A tool
/// that ended says so, and is no longer in the catalogue.
const BACK_WITHIN_CALM: Duration = Duration::from_secs(3);

/// Shared by the catalogue, whose subscription notices a loss, and the calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionHealth(Arc<Mutex<Option<Instant>>>);

impl ConnectionHealth {
    /// Records that the connection broke, or carries nothing.
    pub(crate) fn record_loss(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub(crate) fn last_loss(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By when a client that is away since `since` has reconnected, if it lost its connection together with this
    /// process.
    pub(crate) fn reconnected_by(&self, since: Instant) -> Instant {
        self.last_loss().map_or(since, |last| last + BACK_WITHIN)
    }

    /// Until when to wait for a tool of the catalogue that has had no replica since `missed`.
    pub(crate) fn back_until(&self, missed: Instant) -> Instant {
        let calm = missed + BACK_WITHIN_CALM;
        self.last_loss().map_or(calm, |last| calm.max(last + BACK_WITHIN))
    }
}
