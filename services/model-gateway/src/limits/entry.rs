//! Writes entries of the shared limits bucket, which many calls of many gateways change at the same time.
//!
//! One task of each gateway batches the requests of its calls. So only gateways conflict when they write an entry, not
//! calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use bus::{Bus, BusError};
use futures::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;
use service::clock::Clock;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Capacity of the queue of pending requests; calls wait while it is full.
const PENDING_MAX: usize = 1_024;
/// Maximum requests in one batch.
const BATCH_MAX: usize = 256;

/// State of one entry of the bucket.
pub(crate) trait SharedEntry: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// A change of the entry.
    type Request: Send + Sync + 'static;
    /// Result of a change.
    type Response: Send + 'static;

    fn new(now: contract::Timestamp) -> Self;

    /// Applies a request. A request without a response is submitted again, so it may be applied twice.
    fn apply(&mut self, request: &Self::Request, now: contract::Timestamp) -> Self::Response;
}

struct PendingRequest<E: SharedEntry> {
    key: String,
    request: E::Request,
    response: oneshot::Sender<Result<E::Response, BusError>>,
}

/// Submits requests to the entries of one kind.
#[derive(Debug)]
pub(crate) struct EntryWriter<E: SharedEntry> {
    sender: mpsc::Sender<PendingRequest<E>>,
}

impl<E: SharedEntry> EntryWriter<E> {
    /// The writer, and the task that writes its entries until `stop`.
    pub(crate) fn new(
        bus: Bus,
        clock: Arc<dyn Clock>,
        writer: String,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = mpsc::channel(PENDING_MAX);
        (Self { sender }, run_writer(bus, clock, writer, receiver, stop))
    }

    /// Submits a request without waiting for a response. If the queue is full, the request is dropped.
    pub(crate) fn submit_without_reply(&self, key: String, request: E::Request) {
        let (response, _) = oneshot::channel();
        if self.sender.try_send(PendingRequest { key, request, response }).is_err() {
            tracing::debug!("too many pending changes of limits: one is dropped");
        }
    }

    /// Submits a request, and returns its response when the change is stored.
    pub(crate) async fn submit(&self, key: String, request: E::Request) -> Result<E::Response, BusError> {
        let stopped = || BusError::Unavailable("this gateway is stopping".to_owned());
        let (response, receiver) = oneshot::channel();
        self.sender.send(PendingRequest { key, request, response }).await.map_err(|_| stopped())?;
        receiver.await.map_err(|_| stopped())?
    }
}

async fn run_writer<E: SharedEntry>(
    bus: Bus,
    clock: Arc<dyn Clock>,
    writer: String,
    mut receiver: mpsc::Receiver<PendingRequest<E>>,
    stop: CancellationToken,
) {
    let mut batch = Vec::new();
    loop {
        let count = tokio::select! {
            biased;
            count = receiver.recv_many(&mut batch, BATCH_MAX) => count,
            () = stop.cancelled() => return,
        };
        if count == 0 {
            return;
        }
        let mut by_key: BTreeMap<String, Vec<PendingRequest<E>>> = BTreeMap::new();
        for pending in batch.drain(..) {
            by_key.entry(pending.key.clone()).or_default().push(pending);
        }
        join_all(by_key.into_iter().map(|(key, pending)| store_batch(&bus, &*clock, &writer, key, pending))).await;
    }
}

async fn store_batch<E: SharedEntry>(
    bus: &Bus,
    clock: &dyn Clock,
    writer: &str,
    key: String,
    pending: Vec<PendingRequest<E>>,
) {
    let stored = bus.change_limit(&key, writer, |found| {
        let now = clock.now();
        let mut entry: E = match found {
            Some(found) => serde_json::from_slice(found).map_err(|error| {
                BusError::Malformed(format!(
                    "the entry {key} of {}: {error}; delete the entry to reset it",
                    contract::streams::Bucket::Limits.name()
                ))
            })?,
            None => E::new(now),
        };
        let responses: Vec<E::Response> = pending.iter().map(|pending| entry.apply(&pending.request, now)).collect();
        let written = serde_json::to_vec(&entry).map_err(|error| BusError::Malformed(error.to_string()))?;
        Ok((written, responses))
    });
    // A call that was dropped needs no response.
    match stored.await {
        Ok(responses) => {
            for (pending, response) in pending.into_iter().zip(responses) {
                let _ = pending.response.send(Ok(response));
            }
        }
        Err(error) => {
            for pending in pending {
                let _ = pending.response.send(Err(error.clone()));
            }
        }
    }
}
