//! Results of the methods, and the body of an error.

mod fleet;
mod session;

use contract::ErrorCode;
use schemars::JsonSchema;
use serde::Serialize;

pub use fleet::{
    AgentDescription, AgentInfo, AgentList, BudgetList, Caller, DeadLetterInfo, DeadLetterList, DeadLetterRetry,
    FleetStatus, FleetToolList, MailboxPage, ModelList, QueueDepth, QueueList, QueueStatus, ReplicaInfo, ReplyDecision,
    SessionNumbers, StorageStatus, ToolReplicaList, TriedTool,
};
pub use session::{
    AgentStats, CallList, CommandReply, DeadLetterName, Finding, FullResult, GateList, History, IntervalStats,
    OwnSpend, PendingCall, PendingGate, RepairReport, ReplayReport, ReplayedCommit, SessionDescription, SessionError,
    SessionPage, SessionTrace, StatsList, TraceSpan, TranscriptPage, TurnTrace, WaitInfo,
};

/// Problem details of RFC 9457: the body of an error.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Problem<'a> {
    /// Status of the response.
    pub status: u16,
    /// Reason phrase of the status.
    pub title: &'static str,
    /// Description of the failure, and what to do.
    pub detail: &'a str,
    /// Stable code for programs.
    pub code: &'a ErrorCode,
    /// Milliseconds after which a retry may succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The last `seq` of the session, for errors about a cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}
