//! A client of the in-memory server: each operation passes the client's lifecycle and the faults.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bus::transport::{
    Ack, Appended, DriftPolicy, KV_OPERATION, OBJECT_BYTES_MAX, ReadMany, Storage, StorageSize, StreamRewind, Transport,
};
use bus::{Bus, BusError, CoreMessage, Delivery, Depth, Doubt, Headers, Read, Stored, Subscription, SubscriptionEvent};
use bytes::Bytes;
use contract::Timestamp;
use contract::streams::{Bucket, Objects, Queue, Stream};
use contract::subject::{Subject, matches};
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::lifecycle::ClientState;
use crate::pull::Pull;
use crate::server::{ExpiringValue, State, entry_message};
use crate::store::{MAXIMUM_EXCEEDED, Store};
use crate::subscription::{EventReceiver, Registration};
use crate::{Action, ClientLifecycle, Fault, MemoryServer};

/// Time until an operation whose answer is lost times out.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes of one message, as on a nats-server.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Effect of a fault on an operation that is performed.
#[derive(Debug, Clone, Copy, Default)]
struct FaultOutcome {
    /// Number of changes that a read from a replica is behind.
    lag: u64,
    /// The code that an append is answered with, and whether it is stored.
    doubt: Option<(u16, bool)>,
}

/// A client of the in-memory server.
#[derive(Debug)]
pub struct MemoryClient {
    client: Arc<ClientState>,
}

impl MemoryServer {
    /// A new client with a name of its own.
    pub fn bus(&self) -> Bus {
        self.lock().clients += 1;
        let name = format!("client-{}", self.lock().clients);
        self.client(&name).0
    }

    /// A client by name, by which faults know it, and control over its lifecycle. Clients of one name share their
    /// subscriptions' fate: where one is killed, the subscriptions of all are removed.
    pub fn client(&self, name: &str) -> (Bus, ClientLifecycle) {
        let client = Arc::new(ClientState::new(self.clone(), name));
        (Bus::new(Arc::new(MemoryClient { client: client.clone() })), ClientLifecycle { client })
    }
}

impl MemoryClient {
    /// Runs one operation with the fault that it gets.
    async fn run<T>(
        &self,
        action: Action,
        subject: &str,
        perform: impl FnOnce(FaultOutcome) -> Result<T, BusError>,
    ) -> Result<T, BusError> {
        let client = &self.client;
        let lost = || BusError::Timeout { what: subject.to_owned() };
        client
            .run_while_alive(async {
                match client.fault(action, subject) {
                    Fault::None => perform(FaultOutcome::default()),
                    Fault::Stale(lag) => perform(FaultOutcome { lag, ..FaultOutcome::default() }),
                    Fault::Doubtful { code, stored } => {
                        perform(FaultOutcome { doubt: Some((code, stored)), ..FaultOutcome::default() })
                    }
                    Fault::Delay(by) => {
                        tokio::time::sleep(by).await;
                        perform(FaultOutcome::default())
                    }
                    Fault::Lag(by) => {
                        let done = perform(FaultOutcome::default());
                        tokio::time::sleep(by).await;
                        done
                    }
                    Fault::AckLost => {
                        let done = perform(FaultOutcome::default());
                        tokio::time::sleep(TIMEOUT).await;
                        done.and_then(|_| Err(lost()))
                    }
                    Fault::NotDone => Err(BusError::Unavailable(format!("{subject}: no quorum"))),
                    Fault::TooLarge => Err(BusError::TooLarge { bytes: OBJECT_BYTES_MAX + 1, max: OBJECT_BYTES_MAX }),
                    Fault::Redeliver => {
                        client.server.restart();
                        perform(FaultOutcome::default())
                    }
                    Fault::Crash { done } => {
                        if done {
                            drop(perform(FaultOutcome::default()));
                        }
                        client.kill();
                        std::future::pending().await
                    }
                }
            })
            .await
    }

    /// Refuses an operation that names a message by its sequence, unless the connection is still the one of this
    /// generation.
    fn require_connection(&self, generation: u64) -> Result<(), BusError> {
        if self.generation() == generation {
            return Ok(());
        }
        Err(BusError::Unavailable("the server restarted".to_owned()))
    }

    fn message(subject: &str, reply: Option<String>, headers: Headers, payload: Bytes) -> CoreMessage {
        CoreMessage { subject: subject.to_owned(), reply, headers, payload }
    }

    /// Sends a message of core NATS. One that a fault drops is lost without an error.
    async fn send(&self, action: Action, message: CoreMessage) -> Result<(), BusError> {
        check_size(&message.payload, PAYLOAD_BYTES_MAX)?;
        let subject = message.subject.clone();
        let sent = self.run(action, &subject, |_| {
            self.client.server.lock().core.route(&message);
            Ok(())
        });
        match sent.await {
            Err(BusError::Unavailable(_) | BusError::Timeout { .. }) => Ok(()),
            sent => sent,
        }
    }

    /// Sends a request; returns the receiver of its answers.
    async fn send_request(
        &self,
        action: Action,
        subject: &Subject,
        headers: Headers,
        payload: Bytes,
    ) -> Result<EventReceiver, BusError> {
        check_size(&payload, PAYLOAD_BYTES_MAX)?;
        let server = &self.client.server;
        self.run(action, subject.as_str(), |_| {
            let mut state = server.lock();
            let (inbox, events) = state.core.inbox();
            let registration = Registration::Inbox(inbox.clone());
            let answers = EventReceiver { client: self.client.clone(), registration, events };
            if state.core.route(&Self::message(subject.as_str(), Some(inbox), headers, payload)) {
                drop(state);
                return Ok(answers);
            }
            drop(state);
            Err(BusError::NoResponders { subject: subject.to_string() })
        })
        .await
    }
}

#[async_trait]
impl Transport for MemoryClient {
    async fn publish(&self, subject: &Subject, headers: Headers, payload: Bytes) -> Result<(), BusError> {
        self.send(Action::Publish, Self::message(subject.as_str(), None, headers, payload)).await
    }

    async fn reply(&self, to: &str, headers: Headers, payload: Bytes) -> Result<(), BusError> {
        self.send(Action::Reply, Self::message(to, None, headers, payload)).await
    }

    async fn request(
        &self,
        subject: &Subject,
        headers: Headers,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<CoreMessage, BusError> {
        let late = || BusError::Timeout { what: subject.to_string() };
        let request = async {
            let mut answers = self.send_request(Action::Request, subject, headers, payload).await?;
            loop {
                match answers.next().await {
                    Some(SubscriptionEvent::Message(message)) => return Ok(message),
                    // A gap does not end the wait, as with the client of the real server.
                    Some(SubscriptionEvent::Gap) => {}
                    None => return Err(late()),
                }
            }
        };
        self.client.run_while_alive(tokio::time::timeout(timeout, request)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn request_many(
        &self,
        subject: &Subject,
        headers: Headers,
        payload: Bytes,
    ) -> Result<Subscription, BusError> {
        match self.send_request(Action::RequestMany, subject, headers, payload).await {
            Ok(answers) => Ok(answers.into_stream()),
            Err(BusError::NoResponders { .. }) => Ok(futures::stream::empty().boxed()),
            Err(error) => Err(error),
        }
    }

    async fn subscribe(&self, subject: &Subject, queue: Option<&str>) -> Result<Subscription, BusError> {
        let client = &self.client;
        self.run(Action::Subscribe, subject.as_str(), |_| {
            let (id, events) = client.server.lock().core.subscribe(&client.name, subject.as_str(), queue);
            let registration = Registration::Subscription(id);
            Ok(EventReceiver { client: client.clone(), registration, events }.into_stream())
        })
        .await
    }

    async fn append(
        &self,
        subject: &Subject,
        create: bool,
        headers: Headers,
        payload: Bytes,
    ) -> Result<Appended, BusError> {
        let server = &self.client.server;
        let stream =
            stream_of(subject.as_str()).ok_or_else(|| BusError::Unavailable(format!("no stream takes {subject}")))?;
        check_size(&payload, PAYLOAD_BYTES_MAX)?;
        self.run(Action::Append, subject.as_str(), |outcome| {
            if let Some((code, false)) = outcome.doubt {
                return Ok(doubtful(code));
            }
            let now = server.now();
            let stored =
                server.with_stream(stream, |store| store.append(subject.as_str(), create, headers, payload, now));
            match (stored, outcome.doubt) {
                (Ok(seq), None) => {
                    let State { seen_seqs, went_back, .. } = &mut *server.lock();
                    let name = (self.client.name.clone(), stream);
                    let seen = seen_seqs.entry(name.clone()).or_default();
                    if seq <= *seen {
                        went_back.insert(name);
                    }
                    *seen = seq.max(*seen);
                    Ok(Appended::Stored(seq))
                }
                // Only a subject has a maximum here, not the stream.
                (Err(MAXIMUM_EXCEEDED), _) => Ok(Appended::Doubtful(Doubt::Taken(error_text(MAXIMUM_EXCEEDED)))),
                (Ok(_), Some((code, _))) | (Err(code), _) => Ok(doubtful(code)),
            }
        })
        .await
    }

    async fn last(&self, stream: Stream, filter: &Subject, read: Read) -> Result<Option<Stored>, BusError> {
        let server = &self.client.server;
        self.run(Action::Last(read), filter.as_str(), |outcome| {
            let lag = match read {
                Read::Any => outcome.lag,
                Read::Leader => 0,
            };
            let generation = self.generation();
            let found = server.with_stream(stream, |store| store.last(filter.as_str(), lag));
            Ok(found.map(|found| Stored { generation, ..found }))
        })
        .await
    }

    async fn last_many(&self, stream: Stream, filters: &[Subject]) -> Result<ReadMany, BusError> {
        let server = &self.client.server;
        let first = filters.first().map_or("", Subject::as_str);
        self.run(Action::LastMany, first, |outcome| {
            let generation = self.generation();
            let found = server.with_stream(stream, |store| store.last_many(filters, outcome.lag));
            Ok(match found {
                ReadMany::Messages(found) => {
                    ReadMany::Messages(found.into_iter().map(|found| Stored { generation, ..found }).collect())
                }
                ReadMany::TooMany => ReadMany::TooMany,
            })
        })
        .await
    }

    async fn purge(&self, stream: Stream, filter: &Subject) -> Result<u64, BusError> {
        let purge = |store: &mut Store| store.purge(filter.as_str());
        self.run(Action::Purge, filter.as_str(), |_| Ok(self.client.server.with_stream(stream, purge))).await
    }

    async fn delete(&self, stream: Stream, message: &Stored) -> Result<(), BusError> {
        let server = &self.client.server;
        self.run(Action::Delete, stream.name(), |_| {
            self.require_connection(message.generation)?;
            server.with_stream(stream, |store| store.delete(message.seq));
            Ok(())
        })
        .await
    }

    async fn pull(
        &self,
        queue: Queue,
        max: usize,
        wait: Duration,
        stop: CancellationToken,
    ) -> Result<BoxStream<'static, Result<Delivery, BusError>>, BusError> {
        self.run(Action::Pull, queue.durable(), |_| {
            let generation = self.client.server.lock().generation;
            let client = self.client.clone();
            Ok(Pull { client, queue, left: max, until: Instant::now() + wait, stop, generation }.into_stream())
        })
        .await
    }

    async fn ack(&self, delivery: &Delivery, ack: Ack) -> Result<(), BusError> {
        let server = &self.client.server;
        let Some(stream) = stream_of(&delivery.subject) else { return Ok(()) };
        let (seq, now) = (delivery.seq, Instant::now());
        let number = delivery.ack.rsplit('.').next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let acked = self.run(Action::Ack(ack), &delivery.subject, |_| {
            self.require_connection(delivery.generation)?;
            server.with_stream(stream, |store| match ack {
                Ack::Done => store.done(seq),
                Ack::Progress => store.consumer.progress(seq, now),
                Ack::Retry(after) => store.consumer.retry(seq, number, after, now),
            });
            Ok(())
        });
        match (acked.await, ack) {
            // Only `Done` awaits an answer.
            (Err(BusError::Unavailable(_) | BusError::Timeout { .. }), Ack::Progress | Ack::Retry(_)) => Ok(()),
            (acked, _) => acked,
        }
    }

    async fn pause_deliveries(&self, queue: Queue, duration: Option<Duration>) -> Result<(), BusError> {
        self.run(Action::PauseDeliveries, queue.durable(), |_| {
            let until = duration.map(|duration| Instant::now() + duration);
            self.client.server.with_stream(queue.stream(), |store| store.consumer.pause(until));
            Ok(())
        })
        .await
    }

    async fn reset(&self, queue: Queue) -> Result<(), BusError> {
        self.run(Action::Reset, queue.durable(), |_| {
            self.client.server.with_stream(queue.stream(), Store::reset_consumer);
            Ok(())
        })
        .await
    }

    async fn kv_put(&self, bucket: Bucket, key: &str, value: Bytes, ttl: Option<Duration>) -> Result<(), BusError> {
        check_size(&value, PAYLOAD_BYTES_MAX)?;
        self.run(Action::KvPut, key, |_| {
            self.client.server.lock().put_entry(bucket, key, value, ttl);
            Ok(())
        })
        .await
    }

    async fn kv_create(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<Option<u64>, BusError> {
        check_size(&value, PAYLOAD_BYTES_MAX)?;
        self.run(Action::KvCreate, key, |_| {
            let mut state = self.client.server.lock();
            if state.entry(bucket, key).is_some() {
                return Ok(None);
            }
            Ok(Some(state.put_entry(bucket, key, value, ttl)))
        })
        .await
    }

    async fn kv_entry(&self, bucket: Bucket, key: &str) -> Result<Option<(u64, Bytes)>, BusError> {
        self.run(Action::KvGet, key, |_| {
            let state = self.client.server.lock();
            Ok(state.entry(bucket, key).map(|entry| (entry.revision, entry.content.value.clone())))
        })
        .await
    }

    async fn kv_update(
        &self,
        bucket: Bucket,
        key: &str,
        value: Bytes,
        revision: u64,
        ttl: Option<Duration>,
    ) -> Result<Option<u64>, BusError> {
        check_size(&value, PAYLOAD_BYTES_MAX)?;
        self.run(Action::KvUpdate, key, |_| {
            let mut state = self.client.server.lock();
            if state.entry(bucket, key).is_none_or(|entry| entry.revision != revision) {
                return Ok(None);
            }
            Ok(Some(state.put_entry(bucket, key, value, ttl)))
        })
        .await
    }

    async fn kv_delete(&self, bucket: Bucket, key: &str) -> Result<(), BusError> {
        self.run(Action::KvDelete, key, |_| {
            let mut state = self.client.server.lock();
            state.entries.remove(&(bucket, key.to_owned()));
            let mark = vec![(KV_OPERATION.to_owned(), "DEL".to_owned())];
            state.core.observe(&entry_message(bucket, key, mark, Bytes::new()));
            Ok(())
        })
        .await
    }

    async fn kv_list(&self, bucket: Bucket, filter: &str) -> Result<Vec<(String, Bytes)>, BusError> {
        self.run(Action::KvList, filter, |_| {
            let state = self.client.server.lock();
            let found = state
                .entries
                .iter()
                .filter(|((of, key), entry)| *of == bucket && matches(filter, key) && entry.content.is_alive());
            Ok(found.map(|((_, key), entry)| (key.clone(), entry.content.value.clone())).collect())
        })
        .await
    }

    async fn put_object(&self, store: Objects, sha256: &str, body: Bytes) -> Result<(), BusError> {
        check_size(&body, OBJECT_BYTES_MAX)?;
        self.run(Action::PutObject, sha256, |_| {
            let object = ExpiringValue::new(body, store.max_age());
            self.client.server.lock().objects.insert((store, sha256.to_owned()), object);
            Ok(())
        })
        .await
    }

    async fn get_object(&self, store: Objects, sha256: &str) -> Result<Option<Bytes>, BusError> {
        self.run(Action::GetObject, sha256, |_| {
            let state = self.client.server.lock();
            let found = state.objects.get(&(store, sha256.to_owned())).filter(|object| object.is_alive());
            Ok(found.map(|object| object.value.clone()))
        })
        .await
    }

    async fn delete_object(&self, store: Objects, sha256: &str, generation: u64) -> Result<(), BusError> {
        self.run(Action::DeleteObject, sha256, |_| {
            self.require_connection(generation)?;
            self.client.server.lock().objects.remove(&(store, sha256.to_owned()));
            Ok(())
        })
        .await
    }

    fn retention(&self) -> Duration {
        contract::limits::RETENTION
    }

    async fn ensure(&self, _drift: DriftPolicy) -> Result<(), BusError> {
        Ok(())
    }

    async fn depth(&self, queue: Queue) -> Result<Depth, BusError> {
        let depth = |store: &mut Store| store.consumer.depth();
        self.run(Action::Ping, queue.durable(), |_| Ok(self.client.server.with_stream(queue.stream(), depth))).await
    }

    async fn count(&self, stream: Stream, filter: &Subject) -> Result<u64, BusError> {
        let count = |store: &mut Store| store.count(filter.as_str());
        self.run(Action::Ping, filter.as_str(), |_| Ok(self.client.server.with_stream(stream, count))).await
    }

    fn generation(&self) -> u64 {
        self.client.server.lock().generation
    }

    async fn rewound(&self) -> Result<Vec<StreamRewind>, BusError> {
        self.run(Action::Ping, "rewound", |_| {
            let State { streams, seen_seqs, went_back, .. } = &mut *self.client.server.lock();
            let mut rewound = Vec::new();
            for (stream, store) in streams {
                let (name, last) = ((self.client.name.clone(), *stream), store.last_seq());
                let seen = seen_seqs.insert(name.clone(), last).unwrap_or_default();
                if went_back.remove(&name) || last < seen {
                    rewound.push(StreamRewind { stream: *stream, seen, last });
                }
            }
            Ok(rewound)
        })
        .await
    }

    fn may_be_rewound(&self) -> bool {
        self.client.server.lock().went_back.iter().any(|(name, _)| *name == self.client.name)
    }

    async fn storage_size(&self, storage: Storage) -> Result<StorageSize, BusError> {
        let server = &self.client.server;
        let name = match storage {
            Storage::Stream(stream) => stream.name(),
            Storage::Objects(store) => store.name(),
        };
        self.run(Action::Ping, name, |_| {
            Ok(match storage {
                Storage::Stream(stream) => server.with_stream(stream, |store| store.size()),
                Storage::Objects(store) => server.lock().objects_size(store),
            })
        })
        .await
    }

    async fn server_time(&self) -> Result<Timestamp, BusError> {
        Ok(self.client.server.now())
    }

    async fn ping(&self) -> Result<(), BusError> {
        self.run(Action::Ping, "", |_| Ok(())).await
    }

    async fn close(&self) {
        self.client.server.lock().core.disconnect(&self.client.name);
    }
}

/// The doubt that an error code stands for; 0 is `duplicate: true`.
fn doubtful(code: u16) -> Appended {
    Appended::Doubtful(match code {
        0 => Doubt::Duplicate,
        MAXIMUM_EXCEEDED => Doubt::Full(error_text(code)),
        other => Doubt::Overtaken(error_text(other)),
    })
}

fn error_text(code: u16) -> String {
    format!("error {code}")
}

fn check_size(payload: &Bytes, max: usize) -> Result<(), BusError> {
    let bytes = payload.len();
    if bytes > max { Err(BusError::TooLarge { bytes, max }) } else { Ok(()) }
}

/// The stream that stores a subject.
fn stream_of(subject: &str) -> Option<Stream> {
    let takes = |stream: &&Stream| stream.subjects().iter().any(|filter| matches(filter, subject));
    Stream::ALL.iter().find(takes).copied()
}
