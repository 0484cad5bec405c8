//! Sessions in memory, one task at a time on each. What is cached may be stale: a commit that loses its slot tells.
//!
//! The cache is bounded by the bytes of its sessions, since one session may weigh as much as a thousand others; those that
//! were used longest ago go first. A session that is worked on stays: there are no more of these than inputs that a replica
//! works on at the same time.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::shell::Loaded;
use contract::subject::SessionKey;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Bytes that an entry takes besides its session: its key, its lock and its place in the map.
const ENTRY_BYTES: usize = 512;

/// A session's place: locked by the task that works on it.
type Place = Arc<AsyncMutex<Option<Loaded>>>;

/// The cache.
#[derive(Debug)]
pub(crate) struct Cache(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    // A plain lock: it is held for a look-up, never across an await.
    entries: Mutex<Entries>,
    sessions_max: usize,
    /// Bytes of sessions and of compiled patterns together.
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<SessionKey, Entry>,
    uses: u64,
    /// Bytes of all entries.
    bytes: usize,
    /// What the metrics say of the cache, and of compiled patterns.
    shown: (usize, usize),
}

#[derive(Debug)]
struct Entry {
    place: Place,
    used: u64,
    bytes: usize,
}

/// A session's place, held by one task. When it is let go the cache weighs the session anew.
#[derive(Debug)]
pub(crate) struct HeldSession {
    session: OwnedMutexGuard<Option<Loaded>>,
    key: SessionKey,
    cache: Arc<Shared>,
}

impl Cache {
    pub(crate) fn new(sessions_max: usize, bytes_max: usize) -> Self {
        Self(Arc::new(Shared { entries: Mutex::default(), sessions_max: sessions_max.max(1), bytes_max }))
    }

    /// Waits until no other task of this replica works on the session.
    pub(crate) async fn lock(&self, key: &SessionKey) -> HeldSession {
        let session = self.0.place(key).lock_owned().await;
        HeldSession { session, key: key.clone(), cache: self.0.clone() }
    }

    /// The sessions that are remembered.
    pub(crate) fn keys(&self) -> Vec<SessionKey> {
        self.0.lock().by_key.keys().cloned().collect()
    }
}

impl Shared {
    fn place(&self, key: &SessionKey) -> Place {
        let mut entries = self.lock();
        entries.uses += 1;
        let now = entries.uses;
        if let Some(entry) = entries.by_key.get_mut(key) {
            entry.used = now;
            return entry.place.clone();
        }
        let place = Place::default();
        entries.by_key.insert(key.clone(), Entry { place: place.clone(), used: now, bytes: ENTRY_BYTES });
        entries.bytes += ENTRY_BYTES;
        let forgotten = self.shrink(&mut entries);
        drop(entries);
        // Large states are freed without the lock.
        drop(forgotten);
        place
    }

    /// Weighs a session that is let go, and forgets others, or this one, where there is no room for it.
    fn weigh(&self, key: &SessionKey, session: &mut Option<Loaded>) {
        let bytes = ENTRY_BYTES + session.as_ref().map_or(0, |loaded| loaded.session().weight());
        let mut entries = self.lock();
        // Gone is what somebody else forgot between two holders.
        let Some(entry) = entries.by_key.get_mut(key) else { return };
        let before = std::mem::replace(&mut entry.bytes, bytes);
        entries.bytes = entries.bytes - before + bytes;
        let mut forgotten = self.shrink(&mut entries);
        if entries.bytes > self.sessions_bytes_max()
            && let Some(entry) = entries.by_key.get_mut(key)
        {
            entry.bytes = ENTRY_BYTES;
            entries.bytes -= bytes - ENTRY_BYTES;
            forgotten.1 = session.take();
        }
        entries.show();
        drop(entries);
        drop(forgotten);
    }

    /// Forgets what was used longest ago, and some more: a full cache is not sorted at each use.
    fn shrink(&self, entries: &mut Entries) -> (Vec<Entry>, Option<Loaded>) {
        let bytes_max = self.sessions_bytes_max();
        let mut forgotten = Vec::new();
        if entries.bytes > bytes_max || entries.by_key.len() > self.sessions_max {
            let idle = entries.by_key.iter().filter(|(_, entry)| Arc::strong_count(&entry.place) == 1);
            let mut by_age: Vec<(u64, SessionKey)> = idle.map(|(key, entry)| (entry.used, key.clone())).collect();
            by_age.sort_unstable_by_key(|(used, _)| *used);
            for (_, key) in by_age {
                if entries.bytes <= bytes_max / 4 * 3 && entries.by_key.len() <= (self.sessions_max / 4 * 3).max(1) {
                    break;
                }
                if let Some(entry) = entries.by_key.remove(&key) {
                    entries.bytes -= entry.bytes;
                    forgotten.push(entry);
                }
            }
        }
        (forgotten, None)
    }

    /// What compiled patterns leave of the budget.
    fn sessions_bytes_max(&self) -> usize {
        self.bytes_max.saturating_sub(session::pattern_cache_bytes())
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Brings the metrics up to date.
    fn show(&mut self) {
        let now = (self.bytes, session::pattern_cache_bytes());
        for (cache, before, now) in [("sessions", self.shown.0, now.0), ("patterns", self.shown.1, now.1)] {
            if before != now {
                let bytes = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
                telemetry::metric::cache_bytes(cache, bytes(now) - bytes(before));
            }
        }
        self.shown = now;
    }
}

impl Deref for HeldSession {
    type Target = Option<Loaded>;

    fn deref(&self) -> &Self::Target {
        &self.session
    }
}

impl DerefMut for HeldSession {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.session
    }
}

impl Drop for HeldSession {
    fn drop(&mut self) {
        self.cache.weigh(&self.key, &mut self.session);
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

    const MIB: usize = 1 << 20;

    fn key(number: usize) -> SessionKey {
        let session = SessionId::new(&format!("s{number}")).unwrap();
        SessionKey { tenant: TenantId::new("acme").unwrap(), session }
    }

    /// A session whose transcript has so many bytes.
    fn session(number: usize, bytes: usize) -> Loaded {
        let message_id = CommandId::new("u1").unwrap();
        let content = Content::from("x".repeat(bytes).as_str());
        let mut session = Session::new(key(number));
        let said = Event::UserProcessed(UserProcessed { message_id, content, mode: MessageMode::Queue });
        session.fold(0, Timestamp::from_millis(1), &[said]);
        Loaded::unverified(session)
    }

    fn bytes(cache: &Cache) -> usize {
        cache.0.lock().bytes
    }

    async fn is_cached(cache: &Cache, number: usize) -> bool {
        let known = cache.0.lock().by_key.contains_key(&key(number));
        known && cache.lock(&key(number)).await.is_some()
    }

    #[tokio::test]
    async fn sessions_over_the_budget_are_forgotten_oldest_first() {
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
        assert!(bytes(&cache) < large - MIB, "what is taken out weighs nothing");
    }

    #[tokio::test]
    async fn session_heavier_than_the_budget_is_not_kept() {
        let cache = Cache::new(10_000, MIB);
        *cache.lock(&key(1)).await = Some(session(1, 2 * MIB));
        assert!(!is_cached(&cache, 1).await);
        assert!(bytes(&cache) <= MIB);
    }

    #[tokio::test]
    async fn session_that_is_worked_on_is_not_forgotten() {
        let cache = Cache::new(10_000, 4 * MIB);
        let mut held = cache.lock(&key(0)).await;
        *held = Some(session(0, MIB));
        for number in 1..20 {
            *cache.lock(&key(number)).await = Some(session(number, MIB));
        }
        let again = tokio::time::timeout(std::time::Duration::from_millis(10), cache.lock(&key(0))).await;
        assert!(again.is_err(), "a second task must wait for the first one");
        drop(held);
        assert!(is_cached(&cache, 0).await);
    }

    #[tokio::test]
    async fn sessions_over_their_number_are_forgotten() {
        let cache = Cache::new(8, 1 << 30);
        for number in 0..50 {
            *cache.lock(&key(number)).await = Some(session(number, 1));
            assert!(cache.0.lock().by_key.len() <= 8);
        }
        assert!(is_cached(&cache, 49).await);
    }
}
