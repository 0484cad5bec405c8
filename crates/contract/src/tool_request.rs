//! `ai_rpc.tool.request`: requests of operators to executors about tools, without a session.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tool::Outcome;
use crate::{ErrorCode, Json, TenantId, ToolName};

/// Request of an operator to an executor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolRequest {
    /// List the processes that serve the tools of a tenant, with statistics of their calls.
    Replicas {
        /// The tenant whose tools are asked for.
        tenant: TenantId,
    },
    /// Call a tool once, outside of a session.
    Try(Box<ToolTrial>),
}

/// A call that belongs to no session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolTrial {
    /// The tenant that has the tool.
    pub tenant: TenantId,
    /// Name of the tool that is called.
    pub tool: ToolName,
    /// Arguments of the call: a JSON object.
    pub arguments: Json,
    /// Whether a person has approved a call with exactly these arguments.
    pub is_approved: bool,
}

/// Response to a [`ToolRequest`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolResponse {
    /// The processes that serve the tools of the tenant, by tool.
    Replicas(Vec<ToolReplicaStats>),
    /// The result of the call.
    Tried(TrialResult),
    /// The request was refused, and no tool was called.
    Refused {
        /// Stable error code of the refusal.
        code: ErrorCode,
        /// Explanation for people: what failed, and what to do.
        message: String,
    },
}

/// A process that serves a tool, as it describes itself in the NATS services protocol.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ToolReplica")]
pub struct ToolReplicaStats {
    /// Name of the tool that it serves.
    pub tool: ToolName,
    /// Id of the process in the services protocol.
    pub instance: String,
    /// Version that it announces.
    pub version: String,
    /// Start time, as the process reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<String>,
    /// Calls since it started.
    pub calls: u64,
    /// Calls among them that failed.
    pub errors: u64,
    /// Mean time of a call in milliseconds; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_ms: Option<f64>,
    /// The last error, as the tool says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// Answer of a tool to a call outside of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrialResult {
    /// Outcome of the call.
    pub outcome: Outcome,
    /// Text that a model would read.
    pub content: String,
    /// Stable error code, where the outcome is `error`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// Milliseconds from the request to the answer.
    pub duration_ms: u64,
}
