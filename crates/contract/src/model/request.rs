//! The model call on its way to a gateway.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::result::ResultMeta;
use crate::Json;
use crate::ids::CallId;
use crate::layered::layered;
use crate::limits::{CHUNK_BYTES_MAX, CHUNK_TIME_MAX, STREAM_TIMEOUT_MAX};
use crate::timestamp::Timestamp;
use crate::transcript_part::PartRef;

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolDefinition {
    /// Name of the tool.
    pub name: String,
    /// Description for the model: what the tool does and when to use it.
    pub description: String,
    /// JSON Schema of the arguments object.
    pub parameters: Json,
}

layered! {
    /// Streaming settings of a reply: chunk sizes and timeouts.
    pub struct Streaming;

    /// [`Streaming`] as one layer of settings has it. A field that is absent is as the layer below has it.
    #[derive(Copy, Eq, JsonSchema)]
    #[schemars(
        rename = "streaming",
        description = "How replies are streamed. What is left out is as the layer below has it."
    )]
    pub struct StreamingOverride;

    /// `false` sends only whole messages.
    enabled: bool = true,
    /// Milliseconds that deltas are gathered before a chunk goes out.
    #[layer(schemars(range(max = CHUNK_TIME_MAX.as_secs() * 1_000)))]
    chunk_ms: u64 = 25,
    /// Bytes after which a chunk goes out at once.
    #[layer(schemars(range(max = CHUNK_BYTES_MAX)))]
    chunk_bytes: usize = 256,
    /// Seconds that connecting may take.
    #[layer(schemars(range(min = 1, max = STREAM_TIMEOUT_MAX.as_secs())))]
    connect: u64 = 5,
    /// Seconds to the first byte of the reply.
    #[layer(schemars(range(min = 1, max = STREAM_TIMEOUT_MAX.as_secs())))]
    first_byte: u64 = 30,
    /// Seconds between two pieces of the stream.
    #[layer(schemars(range(min = 1, max = STREAM_TIMEOUT_MAX.as_secs())))]
    idle: u64 = 30,
}

impl StreamingOverride {
    /// Checks the bounds. The error names the field.
    pub fn check(&self) -> Result<(), String> {
        let chunk_ms_max = u64::try_from(CHUNK_TIME_MAX.as_millis()).unwrap_or(u64::MAX);
        let seconds_max = STREAM_TIMEOUT_MAX.as_secs();
        let chunk_bytes = self.chunk_bytes.map(|bytes| bytes as u64);
        for (field, value, least, most, unit) in [
            ("chunk_ms", self.chunk_ms, 0, chunk_ms_max, "milliseconds"),
            ("chunk_bytes", chunk_bytes, 0, CHUNK_BYTES_MAX as u64, "bytes"),
            ("connect", self.connect, 1, seconds_max, "seconds"),
            ("first_byte", self.first_byte, 1, seconds_max, "seconds"),
            ("idle", self.idle, 1, seconds_max, "seconds"),
        ] {
            if let Some(value) = value.filter(|value| !(least..=most).contains(value)) {
                return Err(format!("streaming.{field} must be {least} to {most} {unit}, got {value}"));
            }
        }
        Ok(())
    }
}

impl From<&Streaming> for StreamingOverride {
    fn from(all: &Streaming) -> Self {
        Self {
            enabled: Some(all.enabled),
            chunk_ms: Some(all.chunk_ms),
            chunk_bytes: Some(all.chunk_bytes),
            connect: Some(all.connect),
            first_byte: Some(all.first_byte),
            idle: Some(all.idle),
        }
    }
}

/// Head of every work item. It comes first, so that a worker need not read the rest.
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
    /// Deadline, after which the answer is no longer wanted.
    pub deadline: Timestamp,
    /// The agent that asks.
    pub agent: String,
}

impl ItemMeta {
    /// Makes the head of a result of this item. `opened_by` is the item's.
    pub(crate) fn of_result(&self, opened_by: &str) -> ResultMeta {
        let Self { slot, call, attempt, .. } = self;
        let (v, opened_by) = (crate::version::VERSION, opened_by.to_owned());
        ResultMeta { v, slot: *slot, call: call.clone(), attempt: *attempt, opened_by }
    }
}

/// A model call on its way to a gateway.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ModelItem {
    /// Ids of the call and its deadline.
    pub meta: ItemMeta,
    /// The model's id, as in `models.yaml`.
    pub model: String,
    /// The transcript; each is a [`Message`](super::Message) that was serialised once. Absent where the log has parts
    /// of it: an older gateway then refuses the item, and does not send half of a transcript.
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
    #[serde(default, skip_serializing_if = "crate::default::is_default")]
    pub signal: SignalForm,
    /// The id of the commit that opened the call first, as in a [`ToolItem`](crate::tool::ToolItem). Empty from older
    /// orchestrators.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub opened_by: String,
}

impl ModelItem {
    /// Makes the head of a result of this item.
    pub fn result_meta(&self) -> ResultMeta {
        self.meta.of_result(&self.opened_by)
    }
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
