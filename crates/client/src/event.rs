//! Events of a session.

use proto::Notification;
use serde::Deserialize;
use serde_json::Value;

use crate::error::ClientError;

/// An event of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionEvent {
    /// Id of its session.
    pub session_id: String,
    /// The topic, such as `turn.completed`.
    pub topic: String,
    /// Id of the event.
    pub id: String,
    /// Number in the session, from 1 without gaps. Chunks of replies and other transient events have none.
    pub seq: Option<u64>,
    /// Time of the event, as RFC 3339.
    pub time: String,
    /// W3C trace id of the turn; empty without tracing.
    pub trace_id: String,
    /// Content of the event, as far as this crate has a type for it.
    pub content: EventContent,
    /// All of its fields.
    pub data: Value,
}

/// Content of an event. [`SessionEvent::data`] has the fields that are not here.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum EventContent {
    /// `message.user_processed`: a message of a user was accepted.
    UserMessage(AcceptedMessage),
    /// `message.ai_chunk_received`: a part of a reply while it is streamed.
    ReplyChunk(ReplyChunk),
    /// `message.ai_full_received`: a complete reply of a model.
    ReplyCompleted(CompletedReply),
    /// `tool_call.waiting`: a call of a tool of a client waits for its result.
    CallWaiting(LocalCall),
    /// `tool_call.result_processed`: a call has its result.
    CallCompleted(CompletedCall),
    /// `gate.opened`: the session waits for a person.
    GateOpened(GateRequest),
    /// `gate.closed`: a person answered, or nobody did in time.
    GateClosed(ClosedGate),
    /// `error`: an error that people should see. If the turn cannot go on, `turn.completed` follows.
    Failed(SessionFailure),
    /// `turn.started`: a turn began with messages that waited.
    TurnStarted(TurnBegin),
    /// `turn.completed`: a turn ended.
    TurnCompleted(TurnEnd),
    /// `session_ended`: the session ended, and no event follows.
    SessionEnded(SessionEnd),
    /// An event without a type here.
    Other,
}

/// A message of a user.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct AcceptedMessage {
    /// The idempotency key of the command that brought it.
    pub message_id: String,
    /// `steer`, `queue` or `interrupt`.
    #[serde(default)]
    pub mode: String,
}

/// The beginning of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct TurnBegin {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// The idempotency keys of the messages that begin it. One that steers it later is not among them.
    pub messages: Vec<String>,
}

/// A part of a reply while it is streamed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct ReplyChunk {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Number of the step in its turn, from 1.
    pub step: u32,
    /// The attempt: when it grows, the reply starts over.
    pub attempt: String,
    /// Number of the chunk in its attempt, from 0.
    pub index: u64,
    /// Channel that the text belongs to.
    pub channel: ChunkChannel,
    /// The text since the chunk before; all text so far, if [`SessionEvent::is_snapshot`].
    pub delta: String,
}

/// Channel that the text of a chunk belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ChunkChannel {
    /// Text that the user reads.
    Text,
    /// The reasoning of the model.
    Reasoning,
    /// A channel of a newer fleet.
    #[serde(other)]
    Other,
}

/// An attempt as a number, so that attempts are compared by it.
pub(crate) type AttemptNumber = (u64, u64);

impl ReplyChunk {
    pub(crate) fn attempt_number(&self) -> AttemptNumber {
        let (orchestrator, delivery) = self.attempt.split_once('.').unwrap_or((&self.attempt, ""));
        (orchestrator.parse().unwrap_or_default(), delivery.parse().unwrap_or_default())
    }
}

/// A complete reply of a model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct CompletedReply {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Number of the step in its turn, from 1.
    pub step: u32,
    /// Text that the user reads; empty if the reply only calls tools.
    #[serde(default)]
    pub text: String,
}

/// A call of a tool of a client, which waits for its result.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct LocalCall {
    /// Id of the call: unique in its session.
    pub call: String,
    /// Name of the tool.
    pub tool: String,
    /// The arguments, a JSON object.
    pub arguments: Value,
    /// Time at which the call times out and the model reads that nobody answered, as RFC 3339. The timeout does not run
    /// while the session is paused.
    pub deadline: String,
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct CompletedCall {
    /// Id of the call: unique in its session.
    pub call: String,
    /// Name of the tool.
    pub tool: String,
    /// `ok`, `error`, `denied`, `timeout`, `cancelled` or `unknown`.
    pub outcome: String,
    /// Result or error that the model reads.
    pub content: String,
}

/// A gate that opened: the session waits for the decision of a person.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct GateRequest {
    /// Id of the gate.
    pub gate: String,
    /// `approval` of a call, `question`, or an object with `limit` or `error`.
    pub kind: Value,
    /// SHA-256 hash of the arguments, which binds an answer to them.
    pub arguments_sha256: String,
    /// Time at which the gate closes by itself, as RFC 3339.
    pub expires: String,
    /// The tool, if the gate is about a call.
    pub tool: Option<String>,
    /// The arguments of the call, or the question.
    #[serde(default)]
    pub arguments: Value,
}

impl GateRequest {
    /// Whether the model asks a question, so that a text is the answer.
    pub fn is_question(&self) -> bool {
        self.kind == "question"
    }
}

/// A gate that closed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct ClosedGate {
    /// Id of the gate.
    pub gate: String,
    /// `approve`, `deny` or `answer`.
    pub decision: String,
}

/// An error that people should see.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct SessionFailure {
    /// The stable code, such as `model_auth`.
    pub code: String,
    /// For people: what failed, and what to do.
    pub message: String,
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct TurnEnd {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Reason why the turn ended.
    pub stop_reason: TurnStopReason,
    /// Number of steps that it took.
    pub iterations: u32,
    /// The answer for the user.
    pub final_response: String,
    /// Cost of the turn, with what it delegated.
    #[serde(rename = "spent")]
    pub cost: TurnCost,
}

/// The end of a session.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct SessionEnd {
    /// `completed`, `stopped`, `error` or `expired`.
    pub reason: String,
    /// Reason why its last turn ended, if there was one.
    pub stop_reason: Option<TurnStopReason>,
    /// Steps of the last turn.
    #[serde(default)]
    pub iterations: u32,
    /// The answer of the last turn.
    #[serde(default)]
    pub final_response: String,
    /// Cost of the session, with what it delegated.
    #[serde(default, rename = "spent")]
    pub cost: TurnCost,
}

/// Reason why a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnStopReason {
    /// The model finished its work.
    Completed,
    /// Its steps were used up.
    MaxIterations,
    /// Its time was used up.
    Timeout,
    /// Its tokens were used up.
    TokenLimit,
    /// Its money was used up.
    CostLimit,
    /// Its tool calls were used up.
    ToolCallLimit,
    /// The model made the same call again and again.
    Repetition,
    /// Step after step brought nothing new.
    NoProgress,
    /// A client stopped it.
    Stopped,
    /// It could not go on.
    Error,
    /// A reason of a newer fleet.
    #[serde(other)]
    Other,
}

/// Tokens and money that were used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(from = "SpentData")]
#[non_exhaustive]
pub struct TurnCost {
    /// Tokens of requests, cached ones included.
    pub input_tokens: u64,
    /// Tokens of replies, reasoning included.
    pub output_tokens: u64,
    /// Part of the input tokens that the provider had cached.
    pub cached_tokens: u64,
    /// Part of the output tokens that was used for reasoning.
    pub reasoning_tokens: u64,
    /// The price in US dollars.
    pub usd: f64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SpentData {
    usage: UsageData,
    cost_usd: f64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct UsageData {
    input: u64,
    output: u64,
    cached: u64,
    reasoning: u64,
}

impl From<SpentData> for TurnCost {
    fn from(SpentData { usage, cost_usd }: SpentData) -> Self {
        Self {
            input_tokens: usage.input,
            output_tokens: usage.output,
            cached_tokens: usage.cached,
            reasoning_tokens: usage.reasoning,
            usd: cost_usd,
        }
    }
}

impl SessionEvent {
    /// Whether it is a chunk with all the text of a reply so far, for a client that came late.
    pub fn is_snapshot(&self) -> bool {
        self.id.strip_prefix(&self.session_id).is_some_and(|rest| rest.starts_with("-view-"))
    }

    /// Reads a notification. A topic that this crate does not know becomes [`EventContent::Other`].
    pub(crate) fn parse(session_id: &str, notification: Notification) -> Result<Self, ClientError> {
        let Notification { topic, id, seq, time, trace_id, data_json } = notification;
        let unreadable =
            |error| ClientError::internal(format!("the event {topic} of session {session_id} cannot be read: {error}"));
        let data: Value = serde_json::from_str(&data_json).map_err(unreadable)?;
        let content = parse_content(&topic, &data).map_err(unreadable)?;
        Ok(Self { session_id: session_id.to_owned(), topic, id, seq, time, trace_id, content, data })
    }
}

fn parse_content(topic: &str, data: &Value) -> Result<EventContent, serde_json::Error> {
    Ok(match topic {
        "message.user_processed" => EventContent::UserMessage(Deserialize::deserialize(data)?),
        "message.ai_chunk_received" => EventContent::ReplyChunk(Deserialize::deserialize(data)?),
        "message.ai_full_received" => EventContent::ReplyCompleted(Deserialize::deserialize(data)?),
        "tool_call.waiting" => EventContent::CallWaiting(Deserialize::deserialize(data)?),
        "tool_call.result_processed" => EventContent::CallCompleted(Deserialize::deserialize(data)?),
        "gate.opened" => EventContent::GateOpened(Deserialize::deserialize(data)?),
        "gate.closed" => EventContent::GateClosed(Deserialize::deserialize(data)?),
        "error" => EventContent::Failed(Deserialize::deserialize(data)?),
        "turn.started" => EventContent::TurnStarted(Deserialize::deserialize(data)?),
        "turn.completed" => EventContent::TurnCompleted(Deserialize::deserialize(data)?),
        "session_ended" => EventContent::SessionEnded(Deserialize::deserialize(data)?),
        _ => EventContent::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(topic: &str, data: &str) -> Result<EventContent, ClientError> {
        let notification =
            Notification { topic: topic.to_owned(), data_json: data.to_owned(), ..Notification::default() };
        SessionEvent::parse("s", notification).map(|event| event.content)
    }

    #[test]
    fn event_of_a_newer_fleet_is_read() {
        assert_eq!(parse("moon.risen", r#"{"a": 1}"#), Ok(EventContent::Other));
        let data = r#"{"turn": 2, "stop_reason": "moon", "iterations": 3, "final_response": "x", "moon": 1,
                       "spent": {"usage": {"input": 4, "output": 5, "cached": 1, "reasoning": 2}, "cost_usd": 0.5}}"#;
        let Ok(EventContent::TurnCompleted(end)) = parse("turn.completed", data) else { panic!("not read") };
        assert_eq!((end.turn, end.stop_reason, end.final_response.as_str()), (2, TurnStopReason::Other, "x"));
        let cost = TurnCost { input_tokens: 4, output_tokens: 5, cached_tokens: 1, reasoning_tokens: 2, usd: 0.5 };
        assert_eq!(end.cost, cost);
    }

    #[test]
    fn known_event_that_cannot_be_read_is_an_error() {
        for (topic, data) in [("turn.completed", "{}"), ("moon.risen", "no json")] {
            assert_eq!(parse(topic, data).unwrap_err().code(), "internal", "{topic}");
        }
    }
}
