//! Calls of models, and their replies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{CallId, ToolName};
use crate::model::{FailureKind, FinishReason, ReasoningParts, ToolCall};
use crate::spent::Spent;
use crate::timestamp::Timestamp;

/// A fallback of the model takes over, to the turn's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelFellBack {
    /// Number of the fallback in the list, from 1.
    pub number: u32,
    /// Id of the fallback model, as in `models.yaml`.
    pub model: String,
}

/// An open request for a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryOpened {
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// The first turn that stays as it is.
    pub before: u32,
    /// Deadline of the watchdog timer.
    pub deadline: Timestamp,
}

/// An open question to a judge about the running step's reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgeOpened {
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// The model that judges.
    pub model: String,
    /// Deadline of the watchdog timer.
    pub deadline: Timestamp,
}

/// An open model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelCallOpened {
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Number of the step in its turn, from 1.
    pub step: u32,
    /// Deadline of the watchdog timer.
    pub deadline: Timestamp,
}

/// A failed attempt of a model call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelCallFailed {
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Kind of failure, which decides on retries.
    pub kind: FailureKind,
    /// Description of the failure, for people.
    pub message: String,
    /// Tokens and money that were used.
    #[serde(default)]
    pub spent: Spent,
    /// Time of the next attempt; none if there is no further one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Timestamp>,
}

/// A call that is no longer wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCancelled {
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The tool; none for a model call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolName>,
}

/// A model call that gives way to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelCallInterrupted {
    /// Id of the call: unique in its session.
    pub call: CallId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Deadline for its partial text.
    pub until: Timestamp,
}

/// The received text of a reply that was cut off and that no other attempt replaces. It may come after the end of its
/// turn, and of its session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AiCut")]
pub struct AiCutReceived {
    /// The model call that was cut off; also the message's id.
    pub call: CallId,
    /// Number of the turn that made the call, from 1.
    pub turn: u32,
    /// Number of the step in its turn, from 1.
    pub step: u32,
    /// Text that the user read of it: at most 64 KiB. Empty where nothing but its cost came.
    pub text: String,
    /// Tokens and money that were used, where no other event names them.
    #[serde(default)]
    pub spent: Spent,
}

/// The complete reply of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AiReply")]
pub struct AiFullReceived {
    /// The model call that it answers; also the message's id.
    pub call: CallId,
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Number of the step in its turn, from 1.
    pub step: u32,
    /// Text that the user reads.
    pub text: String,
    /// Text as the model wrote it, where that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// Reasoning of the model, where the provider shows it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reasoning: String,
    /// Its calls, with our ids. In the log the pseudo-call `continuation` is among them; viewers get it without that
    /// one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Reason why the reply ended.
    pub finish_reason: FinishReason,
    /// The provider's word for it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub raw_finish_reason: String,
    /// Tokens and money that were used.
    #[serde(default)]
    pub spent: Spent,
    /// Id of the provider that answered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub provider: String,
    /// The model that answered, in the provider's words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// Milliseconds from the request to the end of the reply.
    #[serde(default)]
    pub latency_ms: u64,
    /// Parts that the provider wants to see again in later requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub replay: Option<ReasoningParts>,
}
