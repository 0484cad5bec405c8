//! Cache of session states, each used by one task at a time. A cached state may be stale: then the commit loses its
//! slot.
//!
//! The cache is bounded by the bytes of its sessions, since one session may be as large as a thousand others. The least
//! recently used ones are evicted first. A locked session is not evicted; there are no more of these than inputs that a
//! replica handles at the same time.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::subject::SessionKey;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Bytes of an entry besides its session: its key, its lock and its share of the map.
const ENTRY_BYTES: usize = 512;

/// A state that has a size in memory.
pub(crate) trait Weighted {
    /// Bytes of the state, as an estimate.
    fn weight(&self) -> usize;
}

/// The state of a session, if it is cached; locked by the task that works on it.
type SessionCell<S> = Arc<AsyncMutex<Option<S>>>;

/// Bounded cache of session states.
#[derive(Debug)]
pub(crate) struct Cache<S: Weighted>(Arc<CacheInner<S>>);

#[derive(Debug)]
struct CacheInner<S> {
    // A blocking lock: it is held for a look-up, never across an await.
    entries: Mutex<Entries<S>>,
    sessions_max: usize,
    /// Bytes of sessions and of compiled patterns together.
    bytes_max: usize,
}

#[derive(Debug)]
struct Entries<S> {
    by_key: HashMap<SessionKey, Entry<S>>,
    uses: u64,
    /// Total of all entries.
    bytes: usize,
    /// Bytes of the cache and of the compiled patterns that the metrics have now.
    reported: (usize, usize),
}

#[derive(Debug)]
struct Entry<S> {
    cell: SessionCell<S>,
    used: u64,
    bytes: usize,
}

/// Exclusive access to a cached session. On drop the cache measures the session again.
#[derive(Debug)]
pub(crate) struct SessionGuard<S: Weighted> {
    session: OwnedMutexGuard<Option<S>>,
    key: SessionKey,
    cache: Arc<CacheInner<S>>,
}

impl<S: Weighted> Cache<S> {
    pub(crate) fn new(sessions_max: usize, bytes_max: usize) -> Self {
        Self(Arc::new(CacheInner { entries: Mutex::new(Entries::new()), sessions_max: sessions_max.max(1), bytes_max }))
    }

    /// Waits until no other task of this replica has locked the session, and locks it.
    pub(crate) async fn lock(&self, key: &SessionKey) -> SessionGuard<S> {
        let session = self.0.cell_of(key).lock_owned().await;
        SessionGuard { session, key: key.clone(), cache: self.0.clone() }
    }

    /// The sessions that have an entry.
    pub(crate) fn session_keys(&self) -> Vec<SessionKey> {
        self.0.lock().by_key.keys().cloned().collect()
    }
}

impl<S: Weighted> CacheInner<S> {
    fn cell_of(&self, key: &SessionKey) -> SessionCell<S> {
        let mut entries = self.lock();
        entries.uses += 1;
        let now = entries.uses;
        if let Some(entry) = entries.by_key.get_mut(key) {
            entry.used = now;
            return entry.cell.clone();
        }
        let cell = SessionCell::<S>::default();
        entries.by_key.insert(key.clone(), Entry { cell: cell.clone(), used: now, bytes: ENTRY_BYTES });
        entries.bytes += ENTRY_BYTES;
        let evicted = self.evict_idle(&mut entries);
        drop(entries);
        // Large states are freed after the lock is released.
        drop(evicted);
        cell
    }

    /// Measures a session that is released, and evicts others, or this one, if there is no space for it.
    fn update_weight(&self, key: &SessionKey, session: &mut Option<S>) {
        let bytes = ENTRY_BYTES + session.as_ref().map_or(0, Weighted::weight);
        let mut entries = self.lock();
        // Another task may have evicted the entry between two locks.
        let Some(entry) = entries.by_key.get_mut(key) else { return };
        let before = std::mem::replace(&mut entry.bytes, bytes);
        entries.bytes = entries.bytes - before + bytes;
        let mut evicted = self.evict_idle(&mut entries);
        if entries.bytes > self.sessions_bytes_max()
            && let Some(entry) = entries.by_key.get_mut(key)
        {
            entry.bytes = ENTRY_BYTES;
            entries.bytes -= bytes - ENTRY_BYTES;
            evicted.1 = session.take();
        }
        entries.report_metrics();
        drop(entries);
        drop(evicted);
    }

    /// Evicts the least recently used entries, down to three quarters of the bounds, so that a full cache is not sorted
    /// at each use.
    fn evict_idle(&self, entries: &mut Entries<S>) -> (Vec<Entry<S>>, Option<S>) {
        let bytes_max = self.sessions_bytes_max();
        let mut evicted = Vec::new();
        if entries.bytes > bytes_max || entries.by_key.len() > self.sessions_max {
            let idle = entries.by_key.iter().filter(|(_, entry)| Arc::strong_count(&entry.cell) == 1);
            let mut by_age: Vec<(u64, SessionKey)> = idle.map(|(key, entry)| (entry.used, key.clone())).collect();
            by_age.sort_unstable_by_key(|(used, _)| *used);
            for (_, key) in by_age {
                if entries.bytes <= bytes_max / 4 * 3 && entries.by_key.len() <= (self.sessions_max / 4 * 3).max(1) {
                    break;
                }
                if let Some(entry) = entries.by_key.remove(&key) {
                    entries.bytes -= entry.bytes;
                    evicted.push(entry);
                }
            }
        }
        (evicted, None)
    }

    /// Bytes for sessions: the bound without the compiled patterns.
    fn sessions_bytes_max(&self) -> usize {
        self.bytes_max.saturating_sub(session::pattern_cache_bytes())
    }

    fn lock(&self) -> MutexGuard<'_, Entries<S>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S> Entries<S> {
    fn new() -> Self {
        Self { by_key: HashMap::new(), uses: 0, bytes: 0, reported: (0, 0) }
    }

    /// Adds the changes since the last call to the metrics.
    fn report_metrics(&mut self) {
        let now = (self.bytes, session::pattern_cache_bytes());
        for (cache, before, now) in [("sessions", self.reported.0, now.0), ("patterns", self.reported.1, now.1)] {
            if before != now {
                let bytes = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
                telemetry::metric::cache_bytes(cache, bytes(now) - bytes(before));
            }
        }
        self.reported = now;
    }
}

impl<S: Weighted> Deref for SessionGuard<S> {
    type Target = Option<S>;

    fn deref(&self) -> &Self::Target {
        &self.session
    }
}

impl<S: Weighted> DerefMut for SessionGuard<S> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.session
    }
}

impl<S: Weighted> Drop for SessionGuard<S> {
    fn drop(&mut self) {
        self.cache.update_weight(&self.key, &mut self.session);
    }
}

#[cfg(test)]
mod tests {
    use contract::command::MessageMode;
    use contract::event::{Event, UserProcessed};
    use contract::model::Content;
    use contract::{CommandId, SessionId, TenantId, Timestamp};
    use session::Session;

    use super::*;

    impl Weighted for Session {
        fn weight(&self) -> usize {
            Self::weight(self)
        }
    }

    const MIB: usize = 1 << 20;

    fn key(number: usize) -> SessionKey {
        let session = SessionId::new(&format!("s{number}")).unwrap();
        SessionKey { tenant: TenantId::new("acme").unwrap(), session }
    }

    /// A session whose transcript has `bytes` bytes.
    fn session(number: usize, bytes: usize) -> Session {
        let message_id = CommandId::new("u1").unwrap();
        let content = Content::from("x".repeat(bytes).as_str());
        let mut session = Session::new(key(number));
        let processed =
            Event::UserProcessed(UserProcessed { message_id, content, mode: MessageMode::Queue, client_tools: None });
        session.fold(0, Timestamp::from_millis(1), &[processed]);
        session
    }

    fn bytes(cache: &Cache<Session>) -> usize {
        cache.0.lock().bytes
    }

    async fn is_cached(cache: &Cache<Session>, number: usize) -> bool {
        let known = cache.0.lock().by_key.contains_key(&key(number));
        known && cache.lock(&key(number)).await.is_some()
    }

    #[tokio::test]
    async fn sessions_over_the_byte_limit_oldest_are_evicted_first() {
        let cache = Cache::new(10_000, 10 * MIB);
        for number in 0..100 {
            *cache.lock(&key(number)).await = Some(session(number, MIB));
            assert!(bytes(&cache) <= 10 * MIB, "{} bytes after {number}", bytes(&cache));
            // The first one is used again and again.
            assert!(is_cached(&cache, 0).await, "{number}");
        }
        assert!(is_cached(&cache, 99).await && is_cached(&cache, 98).await && !is_cached(&cache, 50).await);
        let large = bytes(&cache);
        *cache.lock(&key(99)).await = None;
        assert!(bytes(&cache) < large - MIB, "a removed session has no weight");
    }

    #[tokio::test]
    async fn session_larger_than_the_cache_is_not_kept() {
        let cache = Cache::new(10_000, MIB);
        *cache.lock(&key(1)).await = Some(session(1, 2 * MIB));
        assert!(!is_cached(&cache, 1).await);
        assert!(bytes(&cache) <= MIB);
    }

    #[tokio::test]
    async fn session_that_is_locked_is_not_evicted() {
        let cache = Cache::new(10_000, 4 * MIB);
        let mut guard = cache.lock(&key(0)).await;
        *guard = Some(session(0, MIB));
        for number in 1..20 {
            *cache.lock(&key(number)).await = Some(session(number, MIB));
        }
        let again = tokio::time::timeout(std::time::Duration::from_millis(10), cache.lock(&key(0))).await;
        assert!(again.is_err(), "a second task must wait for the first one");
        drop(guard);
        assert!(is_cached(&cache, 0).await);
    }

    #[tokio::test]
    async fn sessions_over_their_number_are_evicted() {
        let cache = Cache::new(8, 1 << 30);
        for number in 0..50 {
            *cache.lock(&key(number)).await = Some(session(number, 1));
            assert!(cache.0.lock().by_key.len() <= 8);
        }
        assert!(is_cached(&cache, 49).await);
    }
}
