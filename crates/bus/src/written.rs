//! Last write of this process for each session, so that the next write replaces it without a read.

use contract::commit::SummaryVersion;
use contract::subject::SessionKey;
use quick_cache::UnitWeighter;
use quick_cache::sync::Cache;

/// Most sessions in the cache. A session that was dropped costs a read before its next write.
const SESSIONS_MAX: u64 = 16_384;
/// Sessions for which the cache makes room at first: most processes write nothing.
const SESSIONS_EXPECTED: usize = 64;

/// The last write for each session with the generation of its connection, bounded by [`SESSIONS_MAX`].
pub(crate) struct Written<T>(Cache<SessionKey, (u64, T)>);

/// A setting of a session's timer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetTimer {
    pub(crate) number: u64,
    /// The sequence of its message in the stream.
    pub(crate) seq: u64,
}

/// A line of the session index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WrittenLine {
    pub(crate) version: SummaryVersion,
    pub(crate) revision: u64,
}

impl<T: Clone> Written<T> {
    /// The last write, if the connection over which it was made stands now: a server with an older store gives sequences
    /// out again.
    pub(crate) fn get(&self, key: &SessionKey, generation: u64) -> Option<T> {
        self.0.get(key).filter(|(at, _)| *at == generation).map(|(_, value)| value)
    }

    /// Notes what the server has stored over the connection of `generation`.
    pub(crate) fn note(&self, key: &SessionKey, generation: u64, value: T) {
        self.0.insert(key.clone(), (generation, value));
    }
}

impl<T: Clone> Default for Written<T> {
    fn default() -> Self {
        Self(Cache::with_weighter(SESSIONS_EXPECTED, SESSIONS_MAX, UnitWeighter))
    }
}

#[cfg(test)]
mod tests {
    use contract::{SessionId, TenantId};

    use super::*;

    #[test]
    fn write_over_another_connection_is_not_known() {
        let key =
            |n: u64| SessionKey { tenant: TenantId::default(), session: SessionId::new(&format!("s{n}")).unwrap() };
        let written = Written::default();
        written.note(&key(0), 1, 70);
        assert_eq!((written.get(&key(0), 1), written.get(&key(0), 2), written.get(&key(1), 1)), (Some(70), None, None));
        for n in 1..=2 * SESSIONS_MAX {
            written.note(&key(n), 1, 1);
        }
        assert!(written.0.len() as u64 <= SESSIONS_MAX);
    }
}
