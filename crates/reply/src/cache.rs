//! A cache that is bounded by the bytes of what it holds; what was used longest ago goes first.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The cache. Values are shared with their users.
#[derive(Debug)]
pub(crate) struct ByteCache<K, V> {
    // A plain lock: it is held for a look-up, never while a value is made.
    entries: Mutex<Entries<K, V>>,
    bytes_max: usize,
}

#[derive(Debug)]
struct Entries<K, V> {
    by_key: HashMap<K, Entry<V>>,
    bytes: usize,
    uses: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: Arc<V>,
    bytes: usize,
    used: u64,
}

impl<K: Eq + Hash + Clone, V> ByteCache<K, V> {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { entries: Mutex::new(Entries { by_key: HashMap::new(), bytes: 0, uses: 0 }), bytes_max }
    }

    pub(crate) fn get(&self, key: &K) -> Option<Arc<V>> {
        let mut entries = self.lock();
        entries.uses += 1;
        let now = entries.uses;
        let entry = entries.by_key.get_mut(key)?;
        entry.used = now;
        Some(entry.value.clone())
    }

    /// Keeps a value that takes so many bytes; one that takes more than the whole cache may is not kept.
    pub(crate) fn insert(&self, key: K, value: Arc<V>, bytes: usize) {
        if bytes > self.bytes_max {
            return;
        }
        let mut entries = self.lock();
        entries.uses += 1;
        let entry = Entry { value, bytes, used: entries.uses };
        let before = entries.by_key.insert(key, entry).map_or(0, |entry| entry.bytes);
        entries.bytes = entries.bytes - before + bytes;
        if entries.bytes > self.bytes_max {
            entries.shrink(self.bytes_max);
        }
    }

    /// Bytes of all that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    fn lock(&self) -> MutexGuard<'_, Entries<K, V>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash + Clone, V> Entries<K, V> {
    /// Forgets what was used longest ago, and some more: a full cache is not sorted at each insertion.
    fn shrink(&mut self, bytes_max: usize) {
        let mut by_age: Vec<(u64, usize, K)> =
            self.by_key.iter().map(|(key, entry)| (entry.used, entry.bytes, key.clone())).collect();
        by_age.sort_unstable_by_key(|(used, _, _)| *used);
        let newest = by_age.len().saturating_sub(1);
        for (_, bytes, key) in by_age.into_iter().take(newest) {
            if self.bytes <= bytes_max / 4 * 3 {
                return;
            }
            self.by_key.remove(&key);
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_over_its_bytes_forgets_what_was_used_longest_ago() {
        let cache = ByteCache::new(100);
        for key in 0..10 {
            cache.insert(key, Arc::new(key), 10);
        }
        assert_eq!((cache.bytes(), cache.get(&0).is_some()), (100, true));
        cache.insert(10, Arc::new(10), 10);
        let kept: Vec<i32> = (0..=10).filter(|key| cache.get(key).is_some()).collect();
        assert_eq!((kept, cache.bytes()), (vec![0, 5, 6, 7, 8, 9, 10], 70));
        cache.insert(10, Arc::new(10), 20);
        assert_eq!(cache.bytes(), 80);
        cache.insert(11, Arc::new(11), 101);
        assert_eq!((cache.get(&11), cache.bytes()), (None, 80));
    }
}
