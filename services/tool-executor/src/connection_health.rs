//! When this process last lost its connection: whoever serves a tool may have lost his too, and is not back yet.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a client may take to be back after a server went away: some rest for two seconds between two tries.
pub(crate) const BACK_WITHIN: Duration = Duration::from_secs(5);
/// The same where nothing is known to have happened here: a tool's process may have been replaced, or its server.
const BACK_WITHIN_CALM: Duration = Duration::from_millis(600);

/// Shared by the catalogue, which listens all the time and so notices, and the calls.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConnectionHealth(Arc<Mutex<Option<Instant>>>);

impl ConnectionHealth {
    /// The connection broke, or carries nothing.
    pub(crate) fn record_loss(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// When that last was.
    pub(crate) fn last_loss(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By when a client that is away since `since` would be back, if it lost its connection with this process.
    pub(crate) fn reconnected_by(&self, since: Instant) -> Instant {
        self.last_loss().map_or(since, |last| last + BACK_WITHIN)
    }

    /// Until when a tool of the catalogue that nobody serves since `missed` is waited for.
    pub(crate) fn back_until(&self, missed: Instant) -> Instant {
        let calm = missed + BACK_WITHIN_CALM;
        self.last_loss().map_or(calm, |last| calm.max(last + BACK_WITHIN))
    }
}
