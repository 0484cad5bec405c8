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
const ASKS_MAX: usize = 1_024;
/// Asks that are written at once.
const BATCH_MAX: usize = 256;

/// What an entry of the bucket means.
pub trait Entry: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What is asked of it.
    type Ask: Send + Sync + 'static;
    /// What comes of that.
    type Answer: Send + 'static;

    /// One that nobody has written yet.
    fn new(now: contract::Timestamp) -> Self;

    /// Does what is asked. What was not answered is asked again, though it may have been done.
    fn apply(&mut self, ask: &Self::Ask, now: contract::Timestamp) -> Self::Answer;
}

struct Asked<E: Entry> {
    key: String,
    ask: E::Ask,
    answer: oneshot::Sender<Result<E::Answer, BusError>>,
}

/// The entries of one kind.
#[derive(Debug)]
pub struct Entries<E: Entry> {
    asks: mpsc::Sender<Asked<E>>,
}

impl<E: Entry> Entries<E> {
    /// Entries, and the task that writes them until `end`.
    pub fn new(
        bus: Bus,
        clock: Arc<dyn Clock>,
        writer: String,
        end: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (asks, waiting) = mpsc::channel(ASKS_MAX);
        (Self { asks }, write(bus, clock, writer, waiting, end))
    }

    /// Asks an entry without waiting for an answer; where too much waits already it is left out.
    pub fn tell(&self, key: String, ask: E::Ask) {
        let (answer, _) = oneshot::channel();
        if self.asks.try_send(Asked { key, ask, answer }).is_err() {
            tracing::debug!("too much waits to be written: left out");
        }
    }

    /// Asks an entry; returns when what came of it is stored.
    pub async fn ask(&self, key: String, ask: E::Ask) -> Result<E::Answer, BusError> {
        let gone = || BusError::Unavailable("this gateway is ending".to_owned());
        let (answer, answered) = oneshot::channel();
        self.asks.send(Asked { key, ask, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

async fn write<E: Entry>(
    bus: Bus,
    clock: Arc<dyn Clock>,
    writer: String,
    mut waiting: mpsc::Receiver<Asked<E>>,
    end: CancellationToken,
) {
    let mut batch = Vec::new();
    loop {
        let count = tokio::select! {
            biased;
            count = waiting.recv_many(&mut batch, BATCH_MAX) => count,
            () = end.cancelled() => return,
        };
        if count == 0 {
            return;
        }
        let mut by_key: BTreeMap<String, Vec<Asked<E>>> = BTreeMap::new();
        for asked in batch.drain(..) {
            by_key.entry(asked.key.clone()).or_default().push(asked);
        }
        join_all(by_key.into_iter().map(|(key, asked)| store(&bus, &*clock, &writer, key, asked))).await;
    }
}

async fn store<E: Entry>(bus: &Bus, clock: &dyn Clock, writer: &str, key: String, asked: Vec<Asked<E>>) {
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
        let answers: Vec<E::Answer> = asked.iter().map(|asked| entry.apply(&asked.ask, now)).collect();
        let written = serde_json::to_vec(&entry).map_err(|error| BusError::Malformed(error.to_string()))?;
        Ok((written, answers))
    });
    // A call that has gone needs no answer.
    match stored.await {
        Ok(answers) => {
            for (asked, answer) in asked.into_iter().zip(answers) {
                let _ = asked.answer.send(Ok(answer));
            }
        }
        Err(error) => {
            for asked in asked {
                let _ = asked.answer.send(Err(error.clone()));
            }
        }
    }
}
