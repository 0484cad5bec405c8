//! The body of a commit.

use bus::{Bus, BusError, Offer};
use bytes::Bytes;
use contract::Json;
use contract::commit::{CommitMeta, EventList, EventTexts, FOLD, TranscriptPart, VERSION};
use contract::event::Event;
use contract::limits::SLOTS_PER_PAGE;
use serde::Serialize;
use session::{Decision, Session};

/// A commit that is ready to be written, with the state that it leads to.
pub(crate) struct Prepared {
    pub(crate) slot: u64,
    pub(crate) meta: CommitMeta,
    pub(crate) body: Bytes,
    /// The events of the body, for viewers.
    pub(crate) texts: EventTexts,
    pub(crate) after: Session,
    /// Whether the server removes it after the retention. So the log keeps nothing of an archived session for ever.
    pub(crate) expires: bool,
}

impl Prepared {
    /// The offer of the commit to the log.
    pub(crate) fn offer(&self, bus: &Bus) -> Offer<'_> {
        let Self { slot, meta, body, .. } = self;
        let ttl = self.expires.then(|| bus.transport().retention());
        Offer { slot: *slot, prev: &meta.prev, commit: &meta.commit, body: body.clone(), ttl }
    }
}

#[derive(Serialize)]
struct Body<'a> {
    meta: &'a CommitMeta,
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transcript: Option<TranscriptPart>,
    events: EventList<'a>,
}

/// Folds the decision into the state and serialises it. The first commit of a page contains a snapshot of the state
/// before it, and the messages that are in no part of the transcript yet, and so does a commit with which a log begins. A
/// commit before which there are as many as `part_bytes` of these messages has them as the next part. Each commit of an
/// archived session contains its tombstone, so that a load needs no other commit. The
/// function consumes the state: if the commit loses its slot, the log must be read again anyway.
pub(crate) fn prepare(mut session: Session, decision: &Decision, part_bytes: usize) -> Result<Prepared, BusError> {
    let malformed = |error: serde_json::Error| BusError::Malformed(error.to_string());
    let (slot, seq) = (session.next_slot(), session.seq() + 1);
    let archives = decision.events.iter().any(|event| matches!(event, Event::SessionArchived(_)));
    // What says where a session is stays for as long as the session may live there.
    let moves = decision.events.iter().any(|event| matches!(event, Event::SessionMoved(_)));
    let moves = moves || session.moved().is_some();
    let stands_alone = archives || moves || session.is_archived();
    let begins = decision.events.iter().any(Event::begins_log);
    let (snapshot, transcript) = if stands_alone {
        (Some(session.tombstone()), None)
    } else if begins || slot > 0 && slot.is_multiple_of(SLOTS_PER_PAGE) {
        let (snapshot, part) = session.snapshot_and_part(begins);
        (Some(snapshot), Some(part))
    } else {
        (None, session.wants_part(part_bytes).then(|| session.next_part()))
    };
    let prev = session.commit_id().to_owned();
    let commit = uuid::Uuid::now_v7().simple().to_string();
    if let Some(part) = transcript.as_ref().filter(|_| snapshot.is_none()) {
        session.add_part(slot, &commit, part);
    }
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
        log_start: after.log_start(),
        moved: after.moved().cloned(),
    };
    let texts = EventTexts::of(&decision.events).map_err(malformed)?;
    let events = EventList { events: &decision.events, texts: &texts };
    let body = serde_json::to_vec(&Body { meta: &meta, snapshot, transcript, events }).map_err(malformed)?.into();
    Ok(Prepared { slot, meta, body, texts, after, expires: stands_alone && !moves })
}
