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
}

#[derive(Serialize)]
struct Body<'a> {
    meta: &'a CommitMeta,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<Json>,
    events: &'a [Event],
}

/// Folds the decision into a copy and serialises it. A page's first commit carries the state before it.
pub(crate) fn prepare(before: &Session, decision: &Decision) -> Result<Prepared, serde_json::Error> {
    let slot = before.next_slot();
    let mut after = before.clone();
    after.fold(slot, decision.at, &decision.events);
    let meta = CommitMeta {
        v: VERSION,
        commit: uuid::Uuid::now_v7().simple().to_string(),
        fold: FOLD,
        phase: after.phase(),
        open: after.open_calls(),
        control_seq: after.control_seq(),
        seq: before.seq() + 1,
        time: decision.at,
        trace_id: after.traceparent().and_then(telemetry::trace::trace_id).unwrap_or_default().to_owned(),
    };
    let snapshot = (slot > 0 && slot.is_multiple_of(SLOTS_PER_PAGE)).then(|| before.snapshot());
    let body = serde_json::to_vec(&Body { meta: &meta, snapshot, events: &decision.events })?.into();
    Ok(Prepared { slot, meta, body, after })
}
