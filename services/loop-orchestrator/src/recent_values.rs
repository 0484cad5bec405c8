//! A cache of values that were read lately, limited in number and bytes.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How old the tools and the prompt may be that a session begins with. A burst of sessions then reads them once.
pub(crate) const FRESH: Duration = Duration::from_millis(250);

/// Values by key. One that would exceed a limit clears the cache first. Its blocking lock is held for a look-up only.
#[derive(Debug)]
pub(crate) struct RecentValues<K, V> {
    entries: Mutex<Entries<K, V>>,
    values_max: usize,
    bytes_max: usize,
}

#[derive(Debug)]
struct Entries<K, V> {
    by_key: HashMap<K, Entry<V>>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    bytes: usize,
    at: Instant,
}

impl<K: Eq + Hash, V: Clone> RecentValues<K, V> {
    pub(crate) fn new(values_max: usize, bytes_max: usize) -> Self {
        Self { entries: Mutex::new(Entries { by_key: HashMap::new(), bytes: 0 }), values_max, bytes_max }
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.lock().by_key.get(key).map(|entry| entry.value.clone())
    }

    /// The value, if it was read at most [`FRESH`] ago.
    pub(crate) fn get_fresh(&self, key: &K) -> Option<V> {
        self.lock().by_key.get(key).filter(|entry| entry.at.elapsed() <= FRESH).map(|entry| entry.value.clone())
    }

    /// Notes that a value is still the same, as read at `at`; returns it.
    pub(crate) fn confirm(&self, key: &K, at: Instant, is_same: impl FnOnce(&V) -> bool) -> Option<V> {
        let mut entries = self.lock();
        let entry = entries.by_key.get_mut(key)?;
        if !is_same(&entry.value) {
            return None;
        }
        entry.at = at;
        Some(entry.value.clone())
    }

    /// Keeps a value of so many bytes that was read at `at`. A value larger than the whole cache is not kept.
    pub(crate) fn put(&self, key: K, value: V, bytes: usize, at: Instant) {
        let mut entries = self.lock();
        if let Some(before) = entries.by_key.remove(&key) {
            entries.bytes -= before.bytes;
        }
        if bytes > self.bytes_max {
            return;
        }
        if entries.by_key.len() >= self.values_max || entries.bytes + bytes > self.bytes_max {
            *entries = Entries { by_key: HashMap::new(), bytes: 0 };
        }
        entries.bytes += bytes;
        entries.by_key.insert(key, Entry { value, bytes, at });
    }

    /// Bytes of all values.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, Entries<K, V>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
