//! The server: streams, buckets, object stores and core NATS behind one lock.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bus::transport::StorageSize;
use bus::{CoreMessage, Headers};
use bytes::Bytes;
use contract::Timestamp;
use contract::streams::{Bucket, Objects, Queue, Stream};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Faults;
use crate::core_nats::CoreNats;
use crate::faults::NoFaults;
use crate::store::Store;

/// A server in memory, shared by many [`bus::Bus`] handles; cheap to clone.
#[derive(Clone)]
pub struct MemoryServer {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    state: Mutex<State>,
    /// Notified after a change of the queue's stream.
    pub(crate) changed: BTreeMap<Queue, Notify>,
    pub(crate) faults: Arc<dyn Faults>,
    epoch: Timestamp,
    started: Instant,
}

pub(crate) struct State {
    pub(crate) core: CoreNats,
    pub(crate) streams: BTreeMap<Stream, Store>,
    pub(crate) entries: BTreeMap<(Bucket, String), Entry>,
    /// Revision of the newest entry.
    revision: u64,
    pub(crate) objects: BTreeMap<(Objects, String), ExpiringValue>,
    /// Number of clients without a name of their own.
    pub(crate) clients: u64,
    /// Number of the connections of each client, from 1: every restart makes a new one.
    pub(crate) generation: u64,
    /// Time at which the present connections were made; none before the first restart.
    pub(crate) connected_at: Option<Instant>,
    /// The last sequence of each stream that each client knows.
    pub(crate) seen_seqs: BTreeMap<(String, Stream), u64>,
    /// Streams in which a client's message got a sequence that the client had seen before.
    pub(crate) went_back: BTreeSet<(String, Stream)>,
}

/// A copy of some streams at one moment.
pub struct Backup(BTreeMap<Stream, Store>);

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// An entry of a bucket.
pub(crate) struct Entry {
    pub(crate) revision: u64,
    pub(crate) content: ExpiringValue,
}

impl State {
    /// A stream after the timers and expiries that are due at `now`.
    pub(crate) fn stream(&mut self, stream: Stream, now: Timestamp) -> &mut Store {
        let store = self.streams.entry(stream).or_insert_with(|| Store::new(stream));
        store.advance(now);
        store
    }

    /// Puts an entry, tells the subscribers of its bucket, and returns its revision.
    pub(crate) fn put_entry(&mut self, bucket: Bucket, key: &str, value: Bytes, ttl: Option<Duration>) -> u64 {
        self.revision += 1;
        let content = ExpiringValue::new(value.clone(), ttl.or(bucket.max_age()));
        self.entries.insert((bucket, key.to_owned()), Entry { revision: self.revision, content });
        self.core.observe(&entry_message(bucket, key, Headers::new(), value));
        self.revision
    }

    /// Number of the objects of a store, and their bytes.
    pub(crate) fn objects_size(&self, store: Objects) -> StorageSize {
        let found = self.objects.iter().filter(|((of, _), object)| *of == store && object.is_alive());
        found.fold(StorageSize::default(), |size, (_, object)| StorageSize {
            messages: size.messages + 1,
            bytes: size.bytes + object.value.len() as u64,
        })
    }

    /// An entry that has not expired.
    pub(crate) fn entry(&self, bucket: Bucket, key: &str) -> Option<&Entry> {
        self.entries.get(&(bucket, key.to_owned())).filter(|entry| entry.content.is_alive())
    }
}

/// Message by which a NATS client writes an entry of a bucket.
pub(crate) fn entry_message(bucket: Bucket, key: &str, headers: Headers, payload: Bytes) -> CoreMessage {
    CoreMessage { subject: format!("$KV.{}.{key}", bucket.name()), reply: None, headers, payload }
}

/// A value that may expire.
pub(crate) struct ExpiringValue {
    pub(crate) value: Bytes,
    expires_at: Option<Instant>,
}

impl ExpiringValue {
    pub(crate) fn new(value: Bytes, age_max: Option<Duration>) -> Self {
        Self { value, expires_at: age_max.map(|age| Instant::now() + age) }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.expires_at.is_none_or(|expires_at| Instant::now() < expires_at)
    }
}

impl MemoryServer {
    /// A server without faults, whose clock begins at the system's time.
    pub fn new() -> Self {
        Self::with_faults(Arc::new(NoFaults))
    }

    /// A server with faults, whose clock begins at the system's time.
    pub fn with_faults(faults: Arc<dyn Faults>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::simulated(Timestamp::default().after(now), faults)
    }

    /// A server with faults, whose clock begins at `epoch` and advances with tokio's.
    pub fn simulated(epoch: Timestamp, faults: Arc<dyn Faults>) -> Self {
        let state = State {
            core: CoreNats::default(),
            streams: Stream::ALL.iter().map(|stream| (*stream, Store::new(*stream))).collect(),
            entries: BTreeMap::new(),
            revision: 0,
            objects: BTreeMap::new(),
            clients: 0,
            generation: 1,
            connected_at: None,
            seen_seqs: BTreeMap::new(),
            went_back: BTreeSet::new(),
        };
        let changed = Queue::ALL.iter().map(|queue| (*queue, Notify::new())).collect();
        let state = Mutex::new(state);
        Self { inner: Arc::new(Inner { state, changed, faults, epoch, started: Instant::now() }) }
    }

    /// The time of the server's clock.
    pub fn now(&self) -> Timestamp {
        self.inner.epoch.after(self.inner.started.elapsed())
    }

    /// Restarts the server: every held item is delivered again a second later, pulls end, and subscriptions get a gap.
    pub fn restart(&self) {
        let mut state = self.lock();
        state.generation += 1;
        state.connected_at = Some(Instant::now());
        state.core.send_gaps();
        for store in state.streams.values_mut() {
            store.consumer.redeliver_all(Instant::now());
        }
        drop(state);
        for changed in self.inner.changed.values() {
            changed.notify_waiters();
        }
    }

    /// Copies these streams as they are now.
    pub fn backup(&self, streams: &[Stream]) -> Backup {
        let state = self.lock();
        let copy = |stream: &Stream| state.streams.get(stream).map(|store| (*stream, store.clone()));
        Backup(streams.iter().filter_map(copy).collect())
    }

    /// Restarts the server with an older copy of some of its streams.
    pub fn restore(&self, backup: &Backup) {
        self.replace(backup);
        self.restart();
    }

    /// Replaces some of its streams by an older copy behind connections that stay, as a cluster may.
    pub fn replace(&self, backup: &Backup) {
        self.lock().streams.extend(backup.0.iter().map(|(stream, store)| (*stream, store.clone())));
        for changed in self.inner.changed.values() {
            changed.notify_waiters();
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a fault hook of a test must not cause a second one here.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `f` on a stream after its due timers and expiries, and wakes the pulls from it.
    pub(crate) fn with_stream<T>(&self, stream: Stream, f: impl FnOnce(&mut Store) -> T) -> T {
        let now = self.now();
        let out = f(self.lock().stream(stream, now));
        for queue in Queue::ALL.iter().filter(|queue| queue.stream() == stream) {
            if let Some(changed) = self.inner.changed.get(queue) {
                changed.notify_waiters();
            }
        }
        out
    }
}

impl Default for MemoryServer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MemoryServer")
    }
}
