//! What a viewer receives: one public event, read from the log or heard live, and its form for each protocol.

use std::sync::{Arc, OnceLock};

use contract::commit::Commit;
use contract::event::{ContinuationProgress, Envelope, Topic};
use contract::model::{Channel, Chunk, ReplySnapshot};
use contract::progress::ProgressParams;
use contract::subject::SessionKey;
use contract::{Json, Timestamp};
use serde::{Deserialize, Serialize};

/// Bytes that a notice costs beside its data.
const OVERHEAD: usize = 512;

/// A public event on its way to viewers.
#[derive(Debug)]
pub(crate) struct Notice {
    /// What it is.
    pub(crate) topic: Topic,
    /// Whose, when, which, what.
    pub(crate) envelope: Envelope,
    /// What it means for chunks and for the stream.
    pub(crate) mark: Mark,
    rendered: OnceLock<Arc<str>>,
}

/// What a notice means for the merging of chunks and facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Nothing.
    Plain,
    /// The whole reply of this turn and step: its chunks are worthless now.
    Reply(u32, u32),
    /// The end of this turn: chunks of all its steps are worthless now.
    Turn(u32),
    /// The session's end: nothing follows.
    End,
    /// A piece of a reply.
    Piece(Piece),
    /// Said once, and no loss where there is no room.
    Passing,
}

/// Where a chunk belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The turn.
    pub(crate) turn: u32,
    /// The step.
    pub(crate) step: u32,
    /// The orchestrator's attempt and the delivery.
    pub(crate) attempt: (u32, u32),
    /// Its number within the attempt; none for a piece of a tool call.
    pub(crate) index: Option<u64>,
}

#[derive(Deserialize)]
struct PieceData<'a> {
    turn: u32,
    step: u32,
    attempt: &'a str,
    index: u64,
}

#[derive(Deserialize)]
struct Place {
    turn: u32,
    #[serde(default)]
    step: u32,
}

#[derive(Deserialize)]
struct Stub {
    #[serde(rename = "$blob")]
    _blob: String,
}

impl Notice {
    /// A notice of what was heard; nothing when it is not what the contract says.
    pub(crate) fn heard(topic: Topic, envelope: Envelope) -> Option<Self> {
        let data = envelope.data.get();
        let mark = match topic {
            Topic::AiChunkReceived | Topic::ToolCallPartial => {
                let piece: PieceData<'_> = serde_json::from_str(data).ok()?;
                let index = (topic == Topic::AiChunkReceived).then_some(piece.index);
                let attempt = attempt(piece.attempt)?;
                Mark::Piece(Piece { turn: piece.turn, step: piece.step, attempt, index })
            }
            Topic::AiFullReceived => {
                let place: Place = serde_json::from_str(data).ok()?;
                Mark::Reply(place.turn, place.step)
            }
            Topic::TurnCompleted => {
                let place: Place = serde_json::from_str(data).ok()?;
                Mark::Turn(place.turn)
            }
            Topic::SessionEnded => Mark::End,
            Topic::ToolCallProgress => Mark::Passing,
            Topic::SessionStarted
            | Topic::UserProcessed
            | Topic::ToolCallIdentified
            | Topic::ToolCallResult
            | Topic::StatusPaused
            | Topic::StatusResumed
            | Topic::ContinuationProgress
            | Topic::GateOpened
            | Topic::GateClosed
            | Topic::Configured
            | Topic::ContextPruned
            | Topic::ContextCleared
            | Topic::Error => Mark::Plain,
        };
        Some(Self { topic, envelope, mark, rendered: OnceLock::new() })
    }

    /// The reply so far, as one chunk for a viewer that came late; nothing when nothing was streamed yet.
    pub(crate) fn of_view(key: &SessionKey, now: Timestamp, view: ReplySnapshot) -> Option<Self> {
        let index = view.index.checked_sub(1)?;
        let id = format!("{}-view-{}-{}-{}", key.session, view.turn, view.step, view.attempt);
        let chunk = Chunk {
            turn: view.turn,
            step: view.step,
            attempt: view.attempt,
            index,
            channel: Channel::Text,
            delta: view.text,
            last: false,
            finish_reason: None,
        };
        let envelope = Envelope {
            id,
            session_id: key.session.clone(),
            tenant: key.tenant.clone(),
            seq: None,
            time: now,
            trace_id: String::new(),
            data: Json::of(&chunk),
        };
        Self::heard(Topic::AiChunkReceived, envelope)
    }

    /// Whether its data is only a reference to a body in the object store.
    pub(crate) fn is_stub(envelope: &Envelope) -> bool {
        let data = envelope.data.get();
        data.len() < OVERHEAD && data.contains("$blob") && serde_json::from_str::<Stub>(data).is_ok()
    }

    /// Whether it may be left out when there is no room.
    pub(crate) fn is_chunk(&self) -> bool {
        matches!(self.mark, Mark::Piece(_) | Mark::Passing)
    }

    /// Bytes that it costs in a queue.
    pub(crate) fn bytes(&self) -> usize {
        self.envelope.data.get().len() + OVERHEAD
    }

    /// The JSON-RPC notification; made once for all viewers.
    pub(crate) fn json_rpc(&self) -> Arc<str> {
        self.rendered.get_or_init(|| self.render().into()).clone()
    }

    fn render(&self) -> String {
        let progress = match (self.topic == Topic::ContinuationProgress, self.envelope.seq) {
            (true, Some(seq)) => serde_json::from_str::<ContinuationProgress>(self.envelope.data.get())
                .ok()
                .map(|event| ProgressParams::new(self.envelope.session_id.clone(), seq, self.envelope.time, &event)),
            (true | false, _) => None,
        };
        let method = self.topic.as_str();
        match progress {
            Some(params) => notification(method, &params),
            None => notification(method, &self.envelope),
        }
    }
}

/// A JSON-RPC notification as text.
pub(crate) fn notification<T: Serialize>(method: &str, params: &T) -> String {
    #[derive(Serialize)]
    struct Notification<'a, T> {
        jsonrpc: &'static str,
        method: &'a str,
        params: &'a T,
    }
    serde_json::to_string(&Notification { jsonrpc: "2.0", method, params }).unwrap_or_default()
}

/// The public events of a commit, in order.
pub(crate) fn of_commit(key: &SessionKey, slot: u64, commit: &Commit) -> Vec<Arc<Notice>> {
    let envelopes = commit.envelopes(key, slot).into_iter();
    envelopes.filter_map(|(topic, envelope)| Notice::heard(topic, envelope).map(Arc::new)).collect()
}

fn attempt(text: &str) -> Option<(u32, u32)> {
    let (orchestrator, delivery) = text.split_once('.')?;
    Some((orchestrator.parse().ok()?, delivery.parse().ok()?))
}
