//! Calls of tools, and their results.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::client_tool::Performer;
use crate::command::Budget;
use crate::ids::{AgentId, CallId, SessionId, ToolName};
use crate::timestamp::Timestamp;
use crate::tool::{ApprovalPolicy, ChildUsage, EffectClass, FullResultRef, Outcome};
use crate::{ErrorCode, Json};

/// A complete tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallIdentified {
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// Name of the tool that is called.
    pub tool: ToolName,
    /// Arguments of the call: a JSON object.
    pub arguments: Json,
    /// Effect class, which decides whether a lost call may be repeated.
    pub effect: EffectClass,
    /// Whether a person is asked first.
    pub approval: ApprovalPolicy,
    /// Milliseconds from dispatch to its deadline, the turn's deadline aside.
    pub timeout_ms: u64,
    /// Bytes of its result that the model reads.
    pub max_output: usize,
    /// Performer of the call; `fleet` where it is absent.
    #[serde(default, skip_serializing_if = "Performer::is_fleet")]
    pub performer: Performer,
}

/// A call that waits for the answer of a client, with everything that is needed to perform it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CallWaiting")]
pub struct ClientCallOpened {
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// Name of the tool that is called.
    pub tool: ToolName,
    /// Arguments of the call: a JSON object.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub arguments: Json,
    /// Effect class of the call.
    pub effect: EffectClass,
    /// Bytes of an answer that the model reads.
    pub max_output: usize,
    /// Time at which the model reads that nobody answered.
    pub deadline: Timestamp,
}

/// A tool call on its way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallOpened {
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Deadline, after which an answer is no longer wanted.
    pub deadline: Timestamp,
    /// Set where the loop performs the call itself, by a child session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<Child>,
}

/// A tool call that shows progress may take longer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallExtended {
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// New deadline, after which an answer is no longer wanted.
    pub deadline: Timestamp,
}

/// Data of `tool_call.progress`, which is published once and never logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCallProgress {
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// Name of the tool that is called.
    pub tool: ToolName,
    /// Report of the tool, shortened where it is long.
    #[serde(default)]
    pub text: String,
}

/// A child session that performs a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Child {
    /// The session; its id follows from the call's.
    pub session_id: SessionId,
    /// Its agent, as the model named it.
    pub agent: AgentId,
    /// Task that the child gets.
    pub task: String,
    /// Budget that is reserved for it.
    pub share: Budget,
}

/// The one result of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "CallResult")]
pub struct ToolCallResult {
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// The tool's name, as the model wrote it.
    pub tool: String,
    /// Outcome of the call.
    pub outcome: Outcome,
    /// Text that the model reads.
    pub content: String,
    /// Stable error code, where the outcome is `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// Milliseconds from dispatch to result.
    #[serde(default)]
    pub duration_ms: u64,
    /// Reference to the full result, when `content` has only parts of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<FullResultRef>,
    /// Resources used by the child session that performed the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<ChildUsage>,
    /// Whether it takes the place of an earlier `unknown` or `timeout`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replaces: bool,
    /// Performer of the call, also of one that was not performed; `fleet` where it is absent.
    #[serde(default, skip_serializing_if = "Performer::is_fleet")]
    pub performer: Performer,
    /// The client that answered, of a client's call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}
