//! The body of a commit.

use bytes::Bytes;
use contract::Json;
use contract::commit::{CommitMeta, FOLD, VERSION};
use contract::event::Event;
use contract::limits::SLOTS_PER_PAGE;
use serde::Serialize;
use session::{Decision, Session};

/// A commit that is ready to be written, with the state that it leads to.
pub(crate) struct Prepared {
    pub(crate) slot: u64,
    pub(crate) meta: CommitMeta,
    pub(crate) body: Bytes,
    pub(crate) after: Session,
    /// Whether the server removes it after the retention. So the log keeps nothing of an archived session for ever.
    pub(crate) expires: bool,
}

#[derive(Serialize)]
struct Body<'a> {
    meta: &'a CommitMeta,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<Json>,
    events: &'a [Event],
}

/// Folds the decision into the state and serialises it. The first commit of a page contains a snapshot of the state
/// before it. Each commit of an archived session contains its tombstone, so that a load needs no other commit. The
/// function consumes the state: if the commit loses its slot, the log must be read again anyway.
pub(crate) fn prepare(mut session: Session, decision: &Decision) -> Result<Prepared, serde_json::Error> {
    let (slot, seq) = (session.next_slot(), session.seq() + 1);
    let archives = decision.events.iter().any(|event| matches!(event, Event::SessionArchived(_)));
    // What says where a session is stays for as long as the session may live there.
    let moves = decision.events.iter().any(|event| matches!(event, Event::SessionMoved(_)));
    let moves = moves || session.moved().is_some();
    let stands_alone = archives || moves || session.is_archived();
    let begins = decision.events.iter().any(|event| matches!(event, Event::SessionImported(_)));
    let snapshot = if stands_alone {
        Some(session.tombstone())
    } else {
        (begins || slot > 0 && slot.is_multiple_of(SLOTS_PER_PAGE)).then(|| session.snapshot())
    };
    let prev = session.commit_id().to_owned();
    let commit = uuid::Uuid::now_v7().simple().to_string();
    session.fold(slot, decision.at, &decision.events);
    session.link(slot, &commit);
    let after = session;
    let meta = CommitMeta {
        v: VERSION,
        commit,
        prev,
        fold: FOLD,
        phase: after.phase(),
        open: after.open_calls(),
        control_seq: after.control_seq(),
        timers: after.timers(),
        seq,
        time: decision.at,
        trace_id: after.turn_trace().map_or_else(String::new, |turn| turn.trace_id_hex()),
        archived: after.archived(),
        moved: after.moved().cloned(),
    };
    let body = serde_json::to_vec(&Body { meta: &meta, snapshot, events: &decision.events })?.into();
    Ok(Prepared { slot, meta, body, after, expires: stands_alone && !moves })
}
