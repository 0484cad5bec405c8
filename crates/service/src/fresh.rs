//! Values that are believed for a time without another look, so that a burst of sessions asks for them once.

use std::hash::Hash;
use std::time::Duration;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::time::Instant;

/// Values for which a cache makes room at first. With so few it has one part only, so that a value may take nearly all
/// of it.
const VALUES_EXPECTED: usize = 16;

/// Values by key, of a limited age and bounded by their bytes.
#[derive(Debug)]
pub struct Fresh<K, V> {
    values: Cache<K, Entry<V>, Bytes>,
    age_max: Duration,
}

#[derive(Debug, Clone)]
struct Entry<V> {
    value: V,
    bytes: usize,
    at: Instant,
}

#[derive(Debug, Clone)]
struct Bytes;

impl<K, V> Weighter<K, Entry<V>> for Bytes {
    fn weight(&self, _: &K, entry: &Entry<V>) -> u64 {
        entry.bytes as u64
    }
}

impl<K: Eq + Hash, V: Clone> Fresh<K, V> {
    /// For values that are believed for `age_max`, of so many bytes together.
    pub fn new(age_max: Duration, bytes_max: u64) -> Self {
        Self { values: Cache::with_weighter(VALUES_EXPECTED, bytes_max, Bytes), age_max }
    }

    /// The value, if it is believed still.
    pub fn get(&self, key: &K) -> Option<V> {
        self.values.get(key).filter(|entry| entry.at.elapsed() <= self.age_max).map(|entry| entry.value)
    }

    /// Keeps a value that was asked for at `at`, and takes so many bytes with its key. One that takes more than nearly all
    /// of the cache is not kept.
    pub fn put(&self, key: K, value: V, bytes: usize, at: Instant) {
        self.values.insert(key, Entry { value, bytes, at });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn value_is_believed_for_a_time_from_when_it_was_asked_for() {
        let fresh = Fresh::new(AGE, 100);
        fresh.put("a", 1, 10, Instant::now());
        tokio::time::advance(AGE).await;
        assert_eq!((fresh.get(&"a"), fresh.get(&"b")), (Some(1), None));
        fresh.put("b", 2, 10, Instant::now() - AGE);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!((fresh.get(&"a"), fresh.get(&"b")), (None, None));
    }

    #[test]
    fn values_stay_within_their_bytes() {
        let fresh = Fresh::new(AGE, 100);
        for key in 0..1_000 {
            fresh.put(key, (), 30, Instant::now());
        }
        assert_eq!(fresh.values.len(), 3);
        fresh.put(0, (), 90, Instant::now());
        assert_eq!((fresh.values.len(), fresh.get(&0)), (1, Some(())), "one value may take nearly all");
        fresh.put(1, (), 101, Instant::now());
        assert_eq!(fresh.get(&1), None);
    }
}
