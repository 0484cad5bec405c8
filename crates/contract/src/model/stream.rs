//! Pieces of a reply on their way to viewers; none of them is in a log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::result::FinishReason;

/// A piece of a reply on its way to viewers: `message.ai_chunk_received`. Not a fact; it is in no log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AiChunk")]
pub struct Chunk {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Number of the step in its turn, from 1.
    pub step: u32,
    /// `<orchestrator's attempt>.<delivery>`: a viewer empties its buffer when it grows.
    pub attempt: String,
    /// Counts from 0 within an attempt.
    pub index: u64,
    /// Channel that the delta belongs to.
    pub channel: Channel,
    /// Text since the chunk before.
    pub delta: String,
    /// The last one of this attempt; always sent, also for an empty reply.
    #[serde(rename = "final")]
    pub last: bool,
    /// In the last one: why the reply ended. None where the attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
}

/// Reads the `attempt` of a chunk: that of the orchestrator, and the delivery to the gateway.
pub fn parse_attempt(text: &str) -> Option<(u32, u32)> {
    let (orchestrator, delivery) = text.split_once('.')?;
    Some((orchestrator.parse().ok()?, delivery.parse().ok()?))
}

/// Channel of a chunk: a part of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Channel {
    /// Text that the user reads.
    Text,
    /// Reasoning of the model.
    Reasoning,
}

/// A piece of a tool call's arguments: `tool_call.partial`. For viewers only; executors see complete calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialCall {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Number of the step in its turn, from 1.
    pub step: u32,
    /// Attempt and delivery, as in [`Chunk`].
    pub attempt: String,
    /// Index of the call in the reply, from 0.
    pub index: u32,
    /// The tool's name, once known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// More of its arguments.
    pub delta: String,
}

/// Answer of `ai_rpc.view`: the reply so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplySnapshot {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Number of the step in its turn, from 1.
    pub step: u32,
    /// Attempt and delivery, as in [`Chunk`].
    pub attempt: String,
    /// The next chunk's index.
    pub index: u64,
    /// The text so far.
    pub text: String,
}
