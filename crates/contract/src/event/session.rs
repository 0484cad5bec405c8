//! A session begins, changes, ends, and leaves the log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StopReason;
use crate::ai_config::AiConfig;
use crate::client_tool::ClientTool;
use crate::command::{ContinuationOverride, Features, Parent, ResumeFrom, Verb};
use crate::ids::{CallId, CellName};
use crate::model::{Message, Streaming, StreamingOverride};
use crate::settings::{AgentSettings, ModelSettings};
use crate::spent::Spent;
use crate::timestamp::Timestamp;
use crate::words::words;

/// The session left the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionArchived {
    /// The slots before this one are in the archive.
    pub slots: u64,
}

/// The log was compacted: the commit carries a snapshot, and the log needs nothing from before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogCompacted {
    /// The slots before this one move to the archive.
    pub slots: u64,
}

/// The session came from a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionImported {
    /// The slots before this one are in the archive.
    pub slots: u64,
    /// Time at which the file was written.
    pub exported: Timestamp,
}

/// Another cell has the session, or will have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionMoved {
    /// The cell that has it.
    pub to: CellName,
    /// The slots before this one are the session's, and in the archive; 0 where the session was never in this log.
    pub slots: u64,
}

/// The session's beginning, with everything that it keeps to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionStarted {
    /// Settings of the session's agent.
    pub agent: AgentSettings,
    /// Settings of the session's model.
    pub model: ModelSettings,
    /// Whether it waits for more after its first turn.
    pub interactive: bool,
    /// The composed prompt; the session keeps it.
    pub prompt: String,
    /// SHA-256 over prompt and components.
    pub fingerprint: String,
    /// History to begin with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
    /// Parameters for the provider.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// Tool choices, one for each step of a turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_choice: Vec<serde_json::Value>,
    /// The session's own settings of prompt and requests, without `streaming`; they stay when agent or model are looked
    /// up again.
    #[serde(default, skip_serializing_if = "AiConfig::is_empty")]
    pub ai_config: AiConfig,
    /// Streaming settings of replies.
    pub streaming: Streaming,
    /// The session's own `streaming` settings; they stay when agent or model are looked up again. None from an
    /// orchestrator before fold 13, which took all of `streaming` from the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_streaming: Option<StreamingOverride>,
    /// Models that may take the model's place, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<ModelSettings>,
    /// Features that this session switched.
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub features: Features,
    /// Continuation settings that this session replaced; they stay when agent or model are looked up again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<ContinuationOverride>,
    /// The tools to which the session limits itself, of those that its agent may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_tools: Option<Vec<String>>,
    /// Tools that clients perform.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub client_tools: Vec<ClientTool>,
    /// The call of another session that this one performs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<Parent>>,
    /// The session with whose transcript this one begins. Older orchestrators do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume_from: Option<ResumeFrom>,
}

/// Settings of a running session from now on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Configured {
    /// Client that sent the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Settings of the session's agent.
    pub agent: AgentSettings,
    /// Settings of the session's model.
    pub model: ModelSettings,
    /// Models that may take its place, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<ModelSettings>,
    /// The new prompt and its fingerprint; none: as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<SystemPrompt>,
    /// All features that this session switched.
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub features: Features,
    /// All continuation settings that this session replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<ContinuationOverride>,
    /// Requests to the model from now on; none: as they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// Tools that clients perform, from the next model call; none: as they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_tools: Option<Vec<ClientTool>>,
}

/// Settings of requests to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Requests {
    /// Parameters for the provider.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// Tool choices, one for each step of a turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_choice: Vec<serde_json::Value>,
    /// All of the session's own settings of prompt and requests, without `streaming`.
    #[serde(default, skip_serializing_if = "AiConfig::is_empty")]
    pub ai_config: AiConfig,
    /// Streaming settings of replies; none if unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streaming: Option<Streaming>,
    /// The session's own `streaming` settings.
    #[serde(default, skip_serializing_if = "crate::default::is_default")]
    pub own_streaming: StreamingOverride,
}

/// The system prompt that replaces the session's earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SystemPrompt {
    /// Text of the system prompt.
    pub text: String,
    /// SHA-256 over the text, in hex.
    pub fingerprint: String,
}

/// A command to a child session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildCommanded {
    /// The call that it performs.
    pub call: CallId,
    /// Index among the commands to all children, from 1.
    pub number: u64,
    /// `pause`, `resume` or `stop`.
    pub verb: Verb,
}

words! {
    /// Reason why a session ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[schemars(inline)]
    pub enum EndReason {
        /// Its turn ended and it was not interactive.
        Completed = "completed",
        /// A client or the parent stopped it.
        Stopped = "stopped",
        /// It could not go on.
        Error = "error",
        /// It had no input for too long.
        Expired = "expired",
    }

    /// Its word in an event.
    fn as_str;
}

/// The end of a session, with its last turn's outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionEnded {
    /// Reason why the session ended.
    pub reason: EndReason,
    /// Reason why its last turn ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// `MAX_ITERATIONS_REACHED` at that limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// The last turn's answer.
    #[serde(default)]
    pub final_response: String,
    /// Steps of the last turn.
    #[serde(default)]
    pub iterations: u32,
    /// Tokens and money of the whole session, with those of the sessions below it.
    #[serde(default)]
    pub spent: Spent,
    /// Tokens and money of this session alone. None if an older version counted any of them, since it did not separate
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_own: Option<Spent>,
    /// Client that stopped the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Reason, in the words of the client that stopped it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
