//! Whether the log has one replica: then every read is as fresh as the leader's, and a direct read costs the server a
//! fraction of an API request.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long an answer counts: the replicas of a running stream may be increased.
const CACHED_FOR: Duration = Duration::from_secs(5);

/// The last answer, and when it was requested.
#[derive(Debug, Default)]
pub(super) struct ReplicaCount(Mutex<Option<(Instant, bool)>>);

impl ReplicaCount {
    /// Whether the stream has one replica; none where the last answer is too old.
    pub(super) fn cached(&self) -> Option<bool> {
        let (requested_at, is_one) = (*self.0.lock().unwrap_or_else(PoisonError::into_inner))?;
        (requested_at.elapsed() < CACHED_FOR).then_some(is_one)
    }

    pub(super) fn store(&self, requested_at: Instant, is_one: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((requested_at, is_one));
    }
}
