//! The connection and what belongs to it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_nats::jetstream::object_store::ObjectStore;
use async_nats::{Client, jetstream};
use contract::Timestamp;
use tokio::sync::{OnceCell, broadcast};

use super::seen_seqs::SeenSeqs;
use super::shared_inbox::SharedInbox;

/// Timeout of requests that create or inspect streams.
pub(super) const JETSTREAM_MAX: Duration = Duration::from_secs(5);
/// Timeout of an append or a read: a leader that died gives no answer, and the caller retries.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(2);

/// A connection to NATS.
#[derive(Debug)]
pub struct NatsTransport {
    pub(super) client: Client,
    pub(super) jetstream: jetstream::Context,
    pub(super) replicas: usize,
    pub(super) retention: Duration,
    /// Notified when messages of core NATS may have been lost.
    pub(super) gaps: broadcast::Sender<()>,
    /// Notified of each subscription that was too slow and lost messages.
    pub(super) slow: broadcast::Sender<u64>,
    pub(super) uptime: Uptime,
    pub(super) server_clock: Mutex<Option<ServerClock>>,
    pub(super) stores: Stores,
    /// Whether the log has one replica, and when that was requested.
    pub(super) one_replica_cache: Mutex<Option<(tokio::time::Instant, bool)>>,
    pub(super) shared_inbox: SharedInbox,
    pub(super) seen_seqs: Arc<SeenSeqs>,
}

/// The stores, looked up once.
#[derive(Default)]
pub(super) struct Stores {
    pub(super) work: OnceCell<ObjectStore>,
    pub(super) blobs: OnceCell<ObjectStore>,
    pub(super) archive: OnceCell<ObjectStore>,
    pub(super) results: OnceCell<ObjectStore>,
}

impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stores")
    }
}

/// The time of the server, reckoned on from when it was asked for. It may be ahead by as long as the answer took.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerClock {
    /// Time that the server reported.
    pub(super) time: Timestamp,
    /// Local time of the request.
    pub(super) at: tokio::time::Instant,
    /// Local time at which the clock expires.
    pub(super) until: tokio::time::Instant,
    /// The connection over which it is believed: the next one may be to another server.
    pub(super) generation: u64,
}

impl ServerClock {
    /// The time of the server now.
    pub(super) fn now(self) -> Timestamp {
        self.time.after(self.at.elapsed())
    }
}

/// Time at which the current connection was made, or the last one broke. Clones share it.
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

    /// Returns the time since the current connection was made, or since the last one broke.
    pub(super) fn elapsed(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }
}
