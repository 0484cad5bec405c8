//! Tools that a client brings with its session, and performs itself.

use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Json;
use crate::ids::{CallId, ToolName};
use crate::limits::{CLIENT_TOOL_TIMEOUT_DEFAULT, CLIENT_TOOL_TIMEOUT_MAX};
use crate::timestamp::Timestamp;
use crate::tool::{ApprovalPolicy, EffectClass, Outcome, ToolSpec};

/// A tool that a client brings: the model calls it as any other tool, and the client answers the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientTool {
    /// Name of the tool; no other tool of the session may have it.
    pub name: ToolName,
    /// Description for the model: what the tool does and when to use it.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments object. The model gets it; the client checks the arguments.
    #[serde(default = "any_object")]
    #[schemars(with = "Map<String, Value>")]
    pub parameters: Json,
    /// Effect class of a call. Nobody repeats a call; the class decides what the model reads about a call without an
    /// answer.
    #[serde(default)]
    #[schemars(schema_with = "effect_schema")]
    pub effect: EffectClass,
    /// Milliseconds that a client has for its answer; an hour where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Bytes of an answer that the model reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<usize>,
}

/// The schema of a tool that names none.
fn any_object() -> Json {
    Json::of(&serde_json::json!({"type": "object"}))
}

/// The effect classes of a client's tool: nobody asks a client for the outcome of a lost call.
fn effect_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["pure", "idempotent", "at_most_once"]})
}

impl ClientTool {
    /// Timeout of a call: [`CLIENT_TOOL_TIMEOUT_DEFAULT`] by default, at most [`CLIENT_TOOL_TIMEOUT_MAX`].
    pub fn timeout(&self) -> Duration {
        self.timeout_ms.map_or(CLIENT_TOOL_TIMEOUT_DEFAULT, Duration::from_millis).min(CLIENT_TOOL_TIMEOUT_MAX)
    }

    /// The tool as rules about approvals and models see it.
    pub fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: self.parameters.clone(),
            effect: self.effect,
            approval: ApprovalPolicy::Never,
            timeout_ms: self.timeout_ms,
            max_output: self.max_output,
            instructions: None,
            version: String::new(),
        }
    }
}

/// Performer of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Performer {
    /// An executor, a child session, or a person whom the loop asks.
    #[default]
    Fleet,
    /// The client that brought the tool, or another client of the session.
    Client,
}

impl Performer {
    /// Whether it is the one of a call that does not name any.
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub const fn is_fleet(&self) -> bool {
        match self {
            Self::Fleet => true,
            Self::Client => false,
        }
    }
}

/// Outcome of a call that a client performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientOutcome {
    /// The call was performed: `content` is its result.
    Ok,
    /// The call could not be performed: `content` is the reason.
    Error,
}

impl From<ClientOutcome> for Outcome {
    fn from(outcome: ClientOutcome) -> Self {
        match outcome {
            ClientOutcome::Ok => Self::Ok,
            ClientOutcome::Error => Self::Error,
        }
    }
}

/// Payload of `answer_tool_call`: a client's answer to a call of a tool that a client brought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerToolCall {
    /// The call that waits, as in `tool_call.waiting`.
    pub call: CallId,
    /// Whether the tool did what it was asked.
    pub outcome: ClientOutcome,
    /// Text that the model reads; it may be JSON.
    pub content: String,
}

/// A call that waits for its client, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OpenCall")]
pub struct OpenClientCall {
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// Name of the tool that is called.
    pub tool: ToolName,
    /// The call's arguments, or the beginning of their text where it is long.
    pub arguments: String,
    /// Whether `arguments` is only the beginning; `tool_call.waiting` has the whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shortened: bool,
    /// Time at which the wait began.
    pub since: Timestamp,
    /// Time at which the model reads that nobody answered. A pause of the session extends it by its length.
    pub deadline: Timestamp,
}
