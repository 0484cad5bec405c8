//! The bus in memory: the same semantics as a nats-server, in tokio's time, with the faults of a replicated one on
//! demand. It is deterministic: the same operations give the same answers.

mod answers;
mod client;
mod consumer;
mod core;
mod faults;
mod life;
mod pull;
mod store;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use contract::Timestamp;
use contract::streams::{Bucket, Objects, Queue, Stream};
use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::client::Client;
use self::core::Core;
use self::faults::Faultless;
pub use self::faults::{Action, Fault, Faults, Op};
pub use self::life::Life;
use self::store::Store;
use crate::Bus;
use crate::transport::StorageSize;

/// A server in memory, shared by many [`Bus`] handles; cheap to clone.
#[derive(Clone)]
pub struct MemoryServer {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    changed: BTreeMap<Queue, Notify>,
    faults: Arc<dyn Faults>,
    epoch: Timestamp,
    started: Instant,
}

struct State {
    core: Core,
    streams: BTreeMap<Stream, Store>,
    entries: BTreeMap<(Bucket, String), Entry>,
    /// Of the youngest entry.
    revision: u64,
    objects: BTreeMap<(Objects, String), Aged>,
    clients: u64,
    restarts: u64,
    /// What each client was told of streams that were put back.
    seen: BTreeMap<(String, Stream), u64>,
}

/// A copy of some streams at one moment.
pub struct Backup(BTreeMap<Stream, Store>);

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// An entry of a bucket.
struct Entry {
    revision: u64,
    aged: Aged,
}

impl State {
    fn enter(&mut self, name: (Bucket, String), aged: Aged) {
        self.revision += 1;
        self.entries.insert(name, Entry { revision: self.revision, aged });
    }

    /// Objects of a store and their bytes.
    fn objects_size(&self, store: Objects) -> StorageSize {
        let found = self.objects.iter().filter(|((of, _), object)| *of == store && object.alive());
        found.fold(StorageSize::default(), |size, (_, object)| StorageSize {
            messages: size.messages + 1,
            bytes: size.bytes + object.value.len() as u64,
        })
    }

    /// An entry that has not expired.
    fn entry(&self, bucket: Bucket, key: &str) -> Option<&Entry> {
        self.entries.get(&(bucket, key.to_owned())).filter(|entry| entry.aged.alive())
    }
}

/// A value that lives until its age is reached.
struct Aged {
    value: Bytes,
    until: Option<Instant>,
}

impl Aged {
    fn new(value: Bytes, age: Option<Duration>) -> Self {
        Self { value, until: age.map(|age| Instant::now() + age) }
    }

    fn alive(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }
}

impl MemoryServer {
    /// A server without faults, whose clock begins at the system's time.
    pub fn new() -> Self {
        Self::with_faults(Arc::new(Faultless))
    }

    /// A server with faults, whose clock begins at the system's time.
    pub fn with_faults(faults: Arc<dyn Faults>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::simulated(Timestamp::default().after(now), faults)
    }

    /// A server with faults, whose clock begins at `epoch` and goes with tokio's.
    pub fn simulated(epoch: Timestamp, faults: Arc<dyn Faults>) -> Self {
        let state = State {
            core: Core::default(),
            streams: Stream::ALL.iter().map(|stream| (*stream, Store::new(*stream))).collect(),
            entries: BTreeMap::new(),
            revision: 0,
            objects: BTreeMap::new(),
            clients: 0,
            restarts: 0,
            seen: BTreeMap::new(),
        };
        let changed = Queue::ALL.iter().map(|queue| (*queue, Notify::new())).collect();
        let state = Mutex::new(state);
        Self { inner: Arc::new(Inner { state, changed, faults, epoch, started: Instant::now() }) }
    }

    /// The server's clock.
    pub fn now(&self) -> Timestamp {
        self.inner.epoch.after(self.inner.started.elapsed())
    }

    /// A new client with a name of its own.
    pub fn bus(&self) -> Bus {
        self.lock().clients += 1;
        let name = format!("client-{}", self.lock().clients);
        self.client(&name).0
    }

    /// A client by name, which faults see, and power over its life. Two clients of one name die together.
    pub fn client(&self, name: &str) -> (Bus, Life) {
        let (client, life) = Client::new(self.clone(), name);
        (Bus::new(Arc::new(client)), life)
    }

    /// Restarts the server: every held item comes again a second later, pulls break off, subscriptions hear of a gap.
    pub fn restart(&self) {
        let mut state = self.lock();
        state.restarts += 1;
        state.core.gaps();
        for store in state.streams.values_mut() {
            store.consumer.redeliver(Instant::now());
        }
        drop(state);
        for changed in self.inner.changed.values() {
            changed.notify_waiters();
        }
    }

    /// A copy of what these streams hold now.
    pub fn backup(&self, streams: &[Stream]) -> Backup {
        let state = self.lock();
        let copy = |stream: &Stream| state.streams.get(stream).map(|store| (*stream, store.clone()));
        Backup(streams.iter().filter_map(copy).collect())
    }

    /// Restarts the server with an older copy of some of its streams.
    pub fn restore(&self, backup: &Backup) {
        self.lock().streams.extend(backup.0.iter().map(|(stream, store)| (*stream, store.clone())));
        self.restart();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in a test's fault hook must not hide behind a second one here.
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `f` on a stream after everything that is due has happened, and wakes whoever pulls from it.
    fn stream<T>(&self, stream: Stream, f: impl FnOnce(&mut Store) -> T) -> Option<T> {
        let now = self.now();
        let out = {
            let mut state = self.lock();
            let store = state.streams.get_mut(&stream)?;
            store.fire(now);
            f(store)
        };
        for queue in Queue::ALL.iter().filter(|queue| queue.stream() == stream) {
            if let Some(changed) = self.inner.changed.get(queue) {
                changed.notify_waiters();
            }
        }
        Some(out)
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
