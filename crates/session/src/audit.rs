//! Folds a whole log again, from its first slot, and compares it with what its writers saw.

use contract::commit::{Commit, FOLD};
use contract::subject::SessionKey;

use crate::Session;

/// A log, folded again.
#[derive(Debug, Clone)]
pub struct Audit {
    /// The state after the last slot that was folded.
    pub session: Session,
    /// Where the fold and what was written disagree; empty when they never do.
    pub differs: Vec<Difference>,
}

/// A slot in which the fold comes to something else than its writer did.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// The slot.
    pub slot: u64,
    /// What differs: `phase`, `open`, `seq`, `control_seq` or `snapshot`.
    pub what: &'static str,
}

/// Folds the commits of a log, which begin with its first slot, up to and with slot `at`.
///
/// No snapshot is used: each is compared with the state that the fold has come to. Those of an older fold are not, since
/// a state of today may hold more than was known then.
pub fn audit(key: SessionKey, commits: &[(u64, Commit)], at: Option<u64>) -> Audit {
    let (mut session, mut differs) = (Session::new(key), Vec::new());
    for (slot, commit) in commits.iter().take_while(|(slot, _)| at.is_none_or(|at| *slot <= at)) {
        let mut compare = |what, same: bool| {
            if !same {
                differs.push(Difference { slot: *slot, what });
            }
        };
        let meta = &commit.meta;
        if let Some(snapshot) = commit.snapshot.as_ref().filter(|_| meta.fold == FOLD) {
            compare("snapshot", session.snapshot() == *snapshot);
        }
        compare("seq", session.seq() + 1 == meta.seq);
        session.fold(*slot, meta.time, &commit.events);
        compare("phase", session.phase() == meta.phase);
        compare("open", session.open_calls() == meta.open);
        compare("control_seq", session.control_seq() == meta.control_seq);
    }
    Audit { session, differs }
}
