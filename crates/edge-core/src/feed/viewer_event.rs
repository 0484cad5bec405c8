//! A public event for viewers, read from the log or received live, with its form for each protocol.

use std::sync::{Arc, OnceLock};

use contract::commit::Commit;
use contract::event::{ContinuationProgress, Envelope, Event, Topic};
use contract::model::{Channel, Chunk, ReplySnapshot, parse_attempt};
use contract::progress::ProgressParams;
use contract::subject::SessionKey;
use contract::{Json, Timestamp};
use serde::{Deserialize, Serialize};

/// Bytes that an event takes in a queue beside its data.
const OVERHEAD_BYTES: usize = 512;

/// A public event on its way to viewers.
#[derive(Debug)]
pub struct ViewerEvent {
    /// Public topic of the event.
    pub topic: Topic,
    /// Event as viewers get it.
    pub envelope: Envelope,
    /// Part that it has in the delivery.
    pub role: EventRole,
    rendered: OnceLock<Arc<str>>,
}

/// Effect of an event on the chunks and events after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventRole {
    /// An event without a part of its own.
    Plain,
    /// The whole reply of this turn and step: its chunks are obsolete.
    ReplyEnd(u32, u32),
    /// The end of this turn: chunks of all its steps are obsolete.
    TurnOutcome(u32),
    /// The end of the session: no event follows.
    SessionEnd,
    /// A piece of a reply.
    Chunk(ChunkPosition),
    /// An event outside the log, which may be dropped if there is no room.
    Transient,
}

/// Position of a chunk in the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkPosition {
    /// Number of the turn.
    pub turn: u32,
    pub(crate) step: u32,
    /// Attempt of the orchestrator, and delivery to the gateway.
    pub(crate) attempt: (u32, u32),
    /// Index within the attempt; `None` for a part of a tool call.
    pub(crate) index: Option<u64>,
}

#[derive(Deserialize)]
struct ChunkData<'a> {
    turn: u32,
    step: u32,
    attempt: &'a str,
    index: u64,
}

#[derive(Deserialize)]
struct StepPosition {
    turn: u32,
    #[serde(default)]
    step: u32,
}

/// The data of an event whose body is in the object store.
#[derive(Deserialize)]
struct BodyReference {
    #[serde(rename = "$blob")]
    _blob: String,
}

impl ViewerEvent {
    /// Reads an envelope; `None` if its data is not as the contract defines it.
    pub fn from_envelope(topic: Topic, envelope: Envelope) -> Option<Self> {
        let data = envelope.data.get();
        let role = match topic {
            Topic::AiChunkReceived | Topic::ToolCallPartial => {
                let chunk: ChunkData<'_> = serde_json::from_str(data).ok()?;
                let index = (topic == Topic::AiChunkReceived).then_some(chunk.index);
                let attempt = parse_attempt(chunk.attempt)?;
                EventRole::Chunk(ChunkPosition { turn: chunk.turn, step: chunk.step, attempt, index })
            }
            Topic::AiFullReceived => {
                let position: StepPosition = serde_json::from_str(data).ok()?;
                EventRole::ReplyEnd(position.turn, position.step)
            }
            Topic::TurnCompleted => {
                let position: StepPosition = serde_json::from_str(data).ok()?;
                EventRole::TurnOutcome(position.turn)
            }
            Topic::SessionEnded => EventRole::SessionEnd,
            Topic::ToolCallProgress => EventRole::Transient,
            Topic::SessionStarted
            | Topic::UserProcessed
            | Topic::TurnStarted
            | Topic::AiCutReceived
            | Topic::ToolCallIdentified
            | Topic::ToolCallWaiting
            | Topic::ToolCallResult
            | Topic::StatusPaused
            | Topic::StatusResumed
            | Topic::ContinuationProgress
            | Topic::GateOpened
            | Topic::GateClosed
            | Topic::Configured
            | Topic::ContextPruned
            | Topic::ContextCleared
            | Topic::Error => EventRole::Plain,
        };
        Some(Self { topic, envelope, role, rendered: OnceLock::new() })
    }

    /// Makes one chunk of the reply so far, for a viewer that came late; `None` if nothing was streamed yet.
    pub(crate) fn from_reply_snapshot(key: &SessionKey, now: Timestamp, snapshot: ReplySnapshot) -> Option<Self> {
        let index = snapshot.index.checked_sub(1)?;
        let id = format!("{}-view-{}-{}-{}", key.session, snapshot.turn, snapshot.step, snapshot.attempt);
        let chunk = Chunk {
            turn: snapshot.turn,
            step: snapshot.step,
            attempt: snapshot.attempt,
            index,
            channel: Channel::Text,
            delta: snapshot.text,
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
        Self::from_envelope(Topic::AiChunkReceived, envelope)
    }

    /// Whether the data is only a reference to a body in the object store.
    pub(crate) fn is_body_reference(envelope: &Envelope) -> bool {
        let data = envelope.data.get();
        data.len() < OVERHEAD_BYTES && data.contains("$blob") && serde_json::from_str::<BodyReference>(data).is_ok()
    }

    /// Whether the event may be dropped if there is no room.
    pub(crate) fn is_droppable(&self) -> bool {
        matches!(self.role, EventRole::Chunk(_) | EventRole::Transient)
    }

    /// Bytes that the event takes in a queue.
    pub(crate) fn bytes(&self) -> usize {
        self.envelope.data.get().len() + OVERHEAD_BYTES
    }

    /// Formats the JSON-RPC notification, once for all viewers.
    pub fn to_json_rpc(&self) -> Arc<str> {
        self.rendered.get_or_init(|| self.format_json_rpc().into()).clone()
    }

    /// Formats what the event tells, without the frame of a protocol.
    pub fn params_json(&self) -> String {
        match self.progress() {
            Some(params) => serde_json::to_string(&params),
            None => serde_json::to_string(&self.envelope),
        }
        .unwrap_or_default()
    }

    fn format_json_rpc(&self) -> String {
        let method = self.topic.as_str();
        match self.progress() {
            Some(params) => format_notification(method, &params),
            None => format_notification(method, &self.envelope),
        }
    }

    /// The progress of a turn, which has a form of its own.
    fn progress(&self) -> Option<ProgressParams> {
        match (self.topic == Topic::ContinuationProgress, self.envelope.seq) {
            (true, Some(seq)) => serde_json::from_str::<ContinuationProgress>(self.envelope.data.get())
                .ok()
                .map(|event| ProgressParams::new(self.envelope.session_id.clone(), seq, self.envelope.time, &event)),
            (true | false, _) => None,
        }
    }
}

/// Formats a JSON-RPC notification.
pub fn format_notification<T: Serialize>(method: &str, params: &T) -> String {
    #[derive(Serialize)]
    struct Notification<'a, T> {
        jsonrpc: &'static str,
        method: &'a str,
        params: &'a T,
    }
    serde_json::to_string(&Notification { jsonrpc: "2.0", method, params }).unwrap_or_default()
}

/// Lists the events of a commit, in order, each with what viewers get of it.
pub fn with_views<'a>(
    key: &SessionKey,
    slot: u64,
    commit: &'a Commit,
) -> impl Iterator<Item = (&'a Event, Option<ViewerEvent>)> + use<'a> {
    let mut envelopes = commit.envelopes(key, slot).into_iter();
    commit.events.iter().map(move |event| {
        let public = event.topic().and_then(|_| envelopes.next());
        (event, public.and_then(|(topic, envelope)| ViewerEvent::from_envelope(topic, envelope)))
    })
}

/// Lists the public events of a commit, in order.
pub fn events_of_commit(key: &SessionKey, slot: u64, commit: &Commit) -> Vec<Arc<ViewerEvent>> {
    with_views(key, slot, commit).filter_map(|(_, view)| view.map(Arc::new)).collect()
}
