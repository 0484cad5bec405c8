//! Folds a whole log again, from its first slot, and compares it with what its writers saw.

use contract::commit::{Commit, FOLD};
use contract::event::Event;
use contract::subject::SessionKey;
use schemars::JsonSchema;

use crate::Session;

/// A log, folded again.
#[derive(Debug, Clone)]
pub struct Audit {
    /// The state after the last slot that was folded.
    pub session: Session,
    /// Differences between the fold and the stored commits; empty if there are none.
    pub differs: Vec<Difference>,
}

/// A slot in which the fold comes to another value than its writer did.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, JsonSchema)]
#[schemars(rename = "ReplayDifference")]
pub struct Difference {
    /// Slot of the commit in the log.
    pub slot: u64,
    /// Name of the value that differs: `phase`, `open`, `seq`, `control_seq`, `archived`, `log_start`, `moved`,
    /// `snapshot` or `transcript`.
    pub what: &'static str,
}

/// Folds the commits of a log, which begin with its first slot, up to and with slot `at`.
///
/// No snapshot is used: each is compared with the state that the fold has come to. Those of an older fold are not,
/// since a state of today may hold more than was known then.
pub fn audit(key: SessionKey, commits: &[(u64, Commit)], at: Option<u64>) -> Audit {
    let mut audit = Audit { session: Session::new(key), differs: Vec::new() };
    for (slot, commit) in commits.iter().take_while(|(slot, _)| at.is_none_or(|at| *slot <= at)) {
        audit.next(*slot, commit);
    }
    audit
}

impl Audit {
    /// A log of which nothing is folded yet.
    pub fn new(key: SessionKey) -> Self {
        Self { session: Session::new(key), differs: Vec::new() }
    }

    /// Folds one more commit; whether it is as its writer saw it. A log whose beginning is gone begins with a page, and
    /// its snapshot is believed.
    pub fn next(&mut self, slot: u64, commit: &Commit) -> bool {
        let before = self.differs.len();
        let meta = &commit.meta;
        let gone = self.session.next_slot() == 0 && slot > 0;
        let mut part = None;
        if let Some(snapshot) = &commit.snapshot {
            if gone {
                match self.session.take_snapshot(snapshot, commit.transcript.as_ref()) {
                    Ok(session) => self.session = session,
                    Err(_) => self.compare(slot, "snapshot", false),
                }
            } else if meta.fold == FOLD {
                let archived = meta.is_archived();
                let expected = if archived {
                    self.session.tombstone()
                } else {
                    let begins_log = commit.events.iter().any(Event::begins_log);
                    let (expected, beside) = self.session.snapshot_and_part(begins_log);
                    part = Some(beside);
                    expected
                };
                self.compare(slot, "snapshot", expected == *snapshot);
            }
        }
        if let Some(stored) = &commit.transcript
            && meta.fold == FOLD
        {
            let expected = part.unwrap_or_else(|| self.session.next_part());
            self.compare(slot, "transcript", expected.is_stored_as(stored));
        }
        self.compare(slot, "seq", self.session.seq() + 1 == meta.seq);
        self.session.fold_commit(slot, commit);
        self.compare(slot, "phase", self.session.phase() == meta.phase);
        self.compare(slot, "open", self.session.open_calls() == meta.open);
        self.compare(slot, "control_seq", self.session.control_seq() == meta.control_seq);
        if meta.fold == FOLD {
            self.compare(slot, "archived", self.session.archived() == meta.archived);
            self.compare(slot, "log_start", self.session.log_start() == meta.log_start);
            self.compare(slot, "moved", self.session.moved() == meta.moved.as_ref());
        }
        self.differs.len() == before
    }

    fn compare(&mut self, slot: u64, what: &'static str, same: bool) {
        if !same {
            self.differs.push(Difference { slot, what });
        }
    }
}
