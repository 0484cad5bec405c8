//! A person is asked.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StopReason;
use crate::Json;
use crate::command::AnswerDecision;
use crate::ids::{CallId, ToolName};
use crate::model::FailureKind;
use crate::settings::OnExpiry;
use crate::timestamp::Timestamp;

/// Kind of a gate: the question that it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateKind {
    /// May this call run?
    Approval,
    /// The model asks: see the arguments of `ask_user`.
    Question,
    /// The turn is at a limit: may it use as much again?
    Limit(StopReason),
    /// A model call has failed for good: shall it be tried again?
    Error(FailureKind),
}

/// A person is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateOpened {
    /// The gate's id: that of the call.
    pub gate: CallId,
    /// Whether it asks for approval, an answer, or more of a limit.
    pub kind: GateKind,
    /// SHA-256 of the arguments that are shown.
    pub arguments_sha256: String,
    /// Time at which the gate closes by itself.
    pub expires: Timestamp,
    /// The call's tool, where the gate is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<ToolName>,
    /// Arguments of the call, where a person approves one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub arguments: Option<Json>,
    /// Decision if nobody answers in time.
    #[serde(default, skip_serializing_if = "crate::default::is_default")]
    pub on_expiry: OnExpiry,
}

/// End of a gate: its decision and who made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateClosed {
    /// Id of the gate that closed.
    pub gate: CallId,
    /// Decision of the person, or of the expiry.
    pub decision: AnswerDecision,
    /// Person or client that decided; none when it expired or the turn ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The arguments with which the call runs, where they were changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<Json>,
    /// SHA-256 in hex of the changed arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments_sha256: Option<String>,
    /// Note of the person, which the model reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}
