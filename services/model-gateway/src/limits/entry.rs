//! Entries of the shared bucket, changed by many calls of many gateways at once.
//!
//! One task of a gateway gathers what its calls ask and writes all of it at once: gateways meet at an entry, calls do not.

use std::collections::BTreeMap;
use std::sync::Arc;

use bus::{Bus, BusError};
use futures::future::join_all;
use serde::Serialize;
use serde::de::DeserializeOwned;
use service::clock::Clock;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Asks that wait to be written; then calls wait.
const PENDING_MAX: usize = 1_024;
/// Asks that are written at once.
const BATCH_MAX: usize = 256;

/// What an entry of the bucket means.
pub(crate) trait SharedEntry: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What is asked of it.
    type Request: Send + Sync + 'static;
    /// What comes of that.
    type Response: Send + 'static;

    /// One that nobody has written yet.
    fn new(now: contract::Timestamp) -> Self;

    /// Does what is asked. What was not answered is asked again, though it may have been done.
    fn apply(&mut self, request: &Self::Request, now: contract::Timestamp) -> Self::Response;
}

struct PendingRequest<E: SharedEntry> {
    key: String,
    request: E::Request,
    response: oneshot::Sender<Result<E::Response, BusError>>,
}

/// The entries of one kind.
#[derive(Debug)]
pub(crate) struct EntryWriter<E: SharedEntry> {
    sender: mpsc::Sender<PendingRequest<E>>,
}

impl<E: SharedEntry> EntryWriter<E> {
    /// Entries, and the task that writes them until `end`.
    pub(crate) fn new(
        bus: Bus,
        clock: Arc<dyn Clock>,
        writer: String,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = mpsc::channel(PENDING_MAX);
        (Self { sender }, run_writer(bus, clock, writer, receiver, stop))
    }

    /// Asks an entry without waiting for an answer; where too much waits already it is left out.
    pub(crate) fn submit_without_reply(&self, key: String, request: E::Request) {
        let (response, _) = oneshot::channel();
        if self.sender.try_send(PendingRequest { key, request, response }).is_err() {
            tracing::debug!("too much waits to be written: left out");
        }
    }

    /// Asks an entry; returns when what came of it is stored.
    pub(crate) async fn submit(&self, key: String, request: E::Request) -> Result<E::Response, BusError> {
        let stopped = || BusError::Unavailable("this gateway is ending".to_owned());
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
                    "the entry {key} of {}: {error}; deleting it begins it anew",
                    contract::streams::Bucket::Limits.name()
                ))
            })?,
            None => E::new(now),
        };
        let responses: Vec<E::Response> = pending.iter().map(|pending| entry.apply(&pending.request, now)).collect();
        let written = serde_json::to_vec(&entry).map_err(|error| BusError::Malformed(error.to_string()))?;
        Ok((written, responses))
    });
    // A call that has gone needs no answer.
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
