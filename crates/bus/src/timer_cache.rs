//! The timers that this process has set: the next setting of one replaces it without reading it first.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use contract::subject::SessionKey;

/// Most sessions in the cache. A session that was dropped costs a read before the next setting of its timer.
const SESSIONS_MAX: usize = 16_384;

/// The last setting of each session's timer by this process, bounded by [`SESSIONS_MAX`].
#[derive(Debug, Default)]
pub(crate) struct TimerCache(Mutex<HashMap<SessionKey, SetTimer>>);

/// A setting of a timer that the server has stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SetTimer {
    pub(crate) number: u64,
    /// The sequence of its message in the stream.
    pub(crate) seq: u64,
    /// The generation of the connection over which it was stored: a server with an older store gives sequences out
    /// again.
    pub(crate) generation: u64,
}

impl TimerCache {
    /// The sequence of a setting before `number`, if it was stored over the connection that stands now.
    pub(crate) fn seq_before(&self, key: &SessionKey, number: u64, generation: u64) -> Option<u64> {
        let cache = self.lock();
        let set = cache.get(key)?;
        (set.generation == generation && set.number < number).then_some(set.seq)
    }

    /// Notes the setting that the server has stored last.
    pub(crate) fn note(&self, key: &SessionKey, set: SetTimer) {
        let mut cache = self.lock();
        if cache.len() >= SESSIONS_MAX && !cache.contains_key(key) {
            cache.clear();
        }
        cache.insert(key.clone(), set);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, SetTimer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use contract::{SessionId, TenantId};

    use super::*;

    #[test]
    fn only_an_earlier_setting_of_the_same_connection_is_replaced_unread() {
        let key =
            |n: usize| SessionKey { tenant: TenantId::default(), session: SessionId::new(&format!("s{n}")).unwrap() };
        let cache = TimerCache::default();
        cache.note(&key(0), SetTimer { number: 2, seq: 70, generation: 1 });
        assert_eq!(cache.seq_before(&key(0), 3, 1), Some(70));
        assert_eq!(cache.seq_before(&key(0), 2, 1), None, "it is set already");
        assert_eq!(cache.seq_before(&key(0), 1, 1), None, "it was replaced by a later one");
        assert_eq!(cache.seq_before(&key(0), 3, 2), None, "stored over another connection");
        assert_eq!(cache.seq_before(&key(1), 3, 1), None);
        for n in 1..=SESSIONS_MAX {
            cache.note(&key(n), SetTimer { number: 1, seq: 1, generation: 1 });
        }
        assert_eq!(cache.seq_before(&key(0), 3, 1), None, "the cache was full");
        assert_eq!(cache.seq_before(&key(SESSIONS_MAX), 2, 1), Some(1));
    }
}
