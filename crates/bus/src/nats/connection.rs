//! The connection and what belongs to it.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, jetstream};
use tokio::sync::broadcast;

use super::object_stores::Stores;
use super::replica_count::ReplicaCount;
use super::seen_seqs::SeenSeqs;
use super::shared_inbox::SharedInbox;
use super::uptime::Uptime;

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
    pub(super) stores: Stores,
    pub(super) replica_count: ReplicaCount,
    pub(super) shared_inbox: SharedInbox,
    pub(super) seen_seqs: Arc<SeenSeqs>,
}
