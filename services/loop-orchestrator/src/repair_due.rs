//! Conditions under which a session's outstanding effects are performed again: they may never have been performed, or
//! may have been lost since.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use contract::Timestamp;
use contract::limits::{CLOCK_SKEW_MAX, QUIET_MAX, TIMER_LATE_MAX};
use contract::subject::SessionKey;

/// Largest difference between the clocks of two replicas that decide. A commit that is younger than the connection by
/// at most this much counts as older.
const CLOCKS_APART: Duration = Duration::from_secs(2 * CLOCK_SKEW_MAX.as_secs());
/// Sessions whose failed effects are remembered; further ones are repaired at an input after [`QUIET_MAX`].
const FAILED_SESSIONS_MAX: usize = 10_000;

/// Facts that a replica knows about the outstanding effects of a session that it has loaded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EffectsEvidence {
    pub(crate) now: Timestamp,
    /// Time of the last commit; none of an empty log.
    pub(crate) last_commit: Option<Timestamp>,
    /// Time at which this replica first saw the connection over which it read the state.
    pub(crate) connected: Timestamp,
    /// Whether it knew the state over an earlier connection: effects may have been lost with the store of the server.
    pub(crate) was_known: bool,
    /// Whether the log ends before a slot that the sender of an input has seen: it has lost commits.
    pub(crate) lacks_slot: bool,
    /// Due time of the session's timer.
    pub(crate) timer: Option<Timestamp>,
}

impl EffectsEvidence {
    /// Whether effects may be missing. A session that was quiet may wait for a message that got lost. The same holds if
    /// its last commit is older than the connection: the server may have come back with an older store, which has the
    /// whole log but not the work items that followed.
    pub(crate) fn may_miss_effects(&self) -> bool {
        let &Self { now, connected, was_known, lacks_slot, timer, .. } = self;
        let is_quiet_or_older = |last: Timestamp| now.since(last) > QUIET_MAX || last.since(connected) < CLOCKS_APART;
        was_known || lacks_slot || self.last_commit.is_some_and(is_quiet_or_older) || is_timer_lost(timer, now)
    }
}

/// Whether a timer is so late that the server must have lost it.
pub(crate) fn is_timer_lost(timer: Option<Timestamp>, now: Timestamp) -> bool {
    timer.is_some_and(|due| now.since(due) > TIMER_LATE_MAX)
}

/// Generation of the connection of the bus, and when this replica first saw it.
#[derive(Debug)]
pub(crate) struct ConnectedSince(Mutex<(u64, Timestamp)>);

impl ConnectedSince {
    pub(crate) fn new(generation: u64, now: Timestamp) -> Self {
        Self(Mutex::new((generation, now)))
    }

    /// Returns when this generation was first seen. For an earlier generation it returns the time of the latest one,
    /// which is later.
    pub(crate) fn first_seen(&self, generation: u64, now: Timestamp) -> Timestamp {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.0 < generation {
            *latest = (generation, now);
        }
        latest.1
    }
}

/// Sessions whose effects failed, and whose state is not cached.
#[derive(Debug, Default)]
pub(crate) struct FailedEffects(Mutex<BTreeSet<SessionKey>>);

impl FailedEffects {
    pub(crate) fn put(&self, key: &SessionKey) {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() < FAILED_SESSIONS_MAX {
            keys.insert(key.clone());
        }
    }

    pub(crate) fn take(&self, key: &SessionKey) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_evidence_alone_has_effects_performed_again() {
        let at = |seconds: u64| Timestamp::from_millis(seconds * 1_000);
        let now = at(10_000);
        let sound = EffectsEvidence {
            now,
            last_commit: Some(at(9_995)),
            connected: at(9_000),
            was_known: false,
            lacks_slot: false,
            timer: Some(at(9_980)),
        };
        assert!(!sound.may_miss_effects());
        assert!(!EffectsEvidence { last_commit: None, timer: None, ..sound }.may_miss_effects(), "a new session");
        for (why, evidence) in [
            ("quiet", EffectsEvidence { last_commit: Some(at(9_989)), ..sound }),
            ("older than the connection", EffectsEvidence { connected: at(9_990), ..sound }),
            ("known before", EffectsEvidence { was_known: true, ..sound }),
            ("slots are missing", EffectsEvidence { lacks_slot: true, ..sound }),
            ("the timer is lost", EffectsEvidence { timer: Some(at(9_969)), ..sound }),
        ] {
            assert!(evidence.may_miss_effects(), "{why}");
        }
    }

    #[test]
    fn failed_effects_are_remembered_once() {
        let key = SessionKey {
            tenant: contract::TenantId::default(),
            session: contract::SessionId::new("s").unwrap_or_else(|_| unreachable!("a valid id")),
        };
        let failed = FailedEffects::default();
        assert!(!failed.take(&key));
        failed.put(&key);
        assert!(failed.take(&key) && !failed.take(&key));
    }
}
