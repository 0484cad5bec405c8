//! The last slot of each session's log, as far as this process knows it: a commit names the message of the slot before
//! it.

use contract::subject::SessionKey;

use crate::Read;
use crate::written::Written;

/// The last known slot of each session.
#[derive(Default)]
pub(crate) struct SeqCache(Written<Tail>);

/// The last slot of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) slot: u64,
    /// The sequence of its message in the stream.
    pub(crate) seq: u64,
    /// The id of its commit: a sequence may be given out again by a server with an older store, an id never is.
    pub(crate) commit: String,
}

impl SeqCache {
    /// The sequence of the slot that holds this commit, where it is the last one that is known and was learned over the
    /// connection that stands now.
    pub(crate) fn seq(&self, key: &SessionKey, slot: u64, commit: &str, generation: u64) -> Option<u64> {
        let tail = self.0.get(key, generation)?;
        (tail.slot == slot && (commit.is_empty() || tail.commit == commit)).then_some(tail.seq)
    }

    /// Notes the last slot of a session's log, as it was learned over the connection of `generation`. What the leader
    /// shows, or has stored just now, replaces the known one; what any replica shows, which may be behind, an older one
    /// only.
    pub(crate) fn note(&self, key: &SessionKey, tail: Tail, generation: u64, read: Read) {
        let is_later = |known: Tail| known.seq >= tail.seq;
        if read == Read::Leader || !self.0.get(key, generation).is_some_and(is_later) {
            self.0.note(key, generation, tail);
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::{SessionId, TenantId};

    use super::*;

    #[test]
    fn leader_read_lowers_the_tail_and_a_replica_read_does_not() {
        let key = SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() };
        let tail = |slot, seq, commit: &str| Tail { slot, seq, commit: commit.to_owned() };
        let seq_cache = SeqCache::default();
        seq_cache.note(&key, tail(20, 1_000, "a"), 1, Read::Leader);
        seq_cache.note(&key, tail(15, 700, "b"), 1, Read::Any);
        assert_eq!(seq_cache.seq(&key, 20, "a", 1), Some(1_000), "a replica may be behind");
        assert_eq!(seq_cache.seq(&key, 20, "b", 1), None, "another history");
        assert_eq!(seq_cache.seq(&key, 20, "a", 2), None, "learned over another connection");
        seq_cache.note(&key, tail(15, 700, "b"), 1, Read::Leader);
        assert_eq!(seq_cache.seq(&key, 15, "b", 1), Some(700), "the leader corrects it downwards");
        seq_cache.note(&key, tail(14, 600, "c"), 2, Read::Any);
        assert_eq!(seq_cache.seq(&key, 14, "c", 2), Some(600), "what was learned before counts no more");
    }
}
