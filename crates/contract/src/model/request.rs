//! The model call on its way to a gateway.

use serde::{Deserialize, Serialize};

use super::result::ResultMeta;
use crate::Json;
use crate::ids::CallId;
use crate::timestamp::Timestamp;
use crate::transcript_part::PartRef;

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// Name of the tool.
    pub name: String,
    /// What it does and when to use it.
    pub description: String,
    /// JSON Schema of the arguments object.
    pub parameters: Json,
}

/// How a reply is streamed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Streaming {
    /// `false` sends only the full message.
    pub enabled: bool,
    /// Milliseconds that deltas are gathered before a chunk goes out.
    pub chunk_ms: u64,
    /// Bytes after which a chunk goes out at once.
    pub chunk_bytes: usize,
    /// Seconds that connecting may take.
    pub connect: u64,
    /// Seconds to the first byte of the reply.
    pub first_byte: u64,
    /// Seconds between two pieces of the stream.
    pub idle: u64,
}

impl Default for Streaming {
    fn default() -> Self {
        Self { enabled: true, chunk_ms: 25, chunk_bytes: 256, connect: 5, first_byte: 30, idle: 30 }
    }
}

/// What stands first in every work item, so that a worker need not read the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ItemMeta {
    /// Version of the contract.
    pub v: u32,
    /// The slot of the commit that opened the call.
    pub slot: u64,
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Number of the step in its turn, from 1.
    pub step: u32,
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// The orchestrator's attempt at this call, from 1.
    pub attempt: u32,
    /// When the answer is no longer wanted.
    pub deadline: Timestamp,
    /// The agent that asks.
    pub agent: String,
}

impl ItemMeta {
    /// What a result tells of the item.
    pub fn of_result(&self) -> ResultMeta {
        let Self { slot, call, attempt, .. } = self;
        ResultMeta { v: crate::version::VERSION, slot: *slot, call: call.clone(), attempt: *attempt }
    }
}

/// A model call on its way to a gateway.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelItem {
    /// Ids of the call and its deadline.
    pub meta: ItemMeta,
    /// The model's id, as in `models.yaml`.
    pub model: String,
    /// The transcript; each is a [`Message`](super::Message) that was serialised once. Not there where the log has parts of
    /// it: an older gateway refuses the item then, and does not send half of a transcript.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Json>,
    /// In the place of `messages`: the transcript of which the log has parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<AfterPart>,
    /// The tools on offer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Json>,
    /// Whether several calls may stand in one reply.
    pub parallel_tool_calls: bool,
    /// `temperature`, `max_tokens` and whatever else the provider takes.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// The form that a reply must have, in the words of OpenAI's `response_format`; for models with structured output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_format: Option<Json>,
    /// Chunk size and timeouts of the stream.
    #[serde(default)]
    pub streaming: Streaming,
    /// The form in which the model was asked to signal; only such a signal is taken out of its text.
    #[serde(default, skip_serializing_if = "SignalForm::is_text")]
    pub signal: SignalForm,
}

/// A transcript of which the log has parts: the system prompt, the parts, and what is in no part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AfterPart {
    /// The last part, which names the parts before it.
    pub part: PartRef,
    /// The system prompt, which stands first.
    pub system: Json,
    /// The messages that stand after the parts.
    pub messages: Vec<Json>,
}

/// The form in which a session asks a model to say whether it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum SignalForm {
    /// It does not ask: the text is shown as it stands.
    Off,
    /// As an object in the text.
    #[default]
    Text,
    /// By the pseudo-call `continuation`; an object in the text is understood too.
    Call,
    /// The whole reply is one object, with what people read in it.
    Envelope,
}

impl SignalForm {
    /// Whether it is the default.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde asks")]
    pub const fn is_text(&self) -> bool {
        matches!(self, Self::Text)
    }
}
