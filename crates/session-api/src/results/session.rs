//! Results of methods about sessions.

use std::collections::BTreeMap;

use contract::client_tool::OpenClientCall;
use contract::commit::{OpenGate, Phase, SessionSummary};
use contract::event::{ErrorEvent, Spent};
use contract::fleet::CallHolder;
use contract::{CallId, CellName, CommandId, ErrorCode, Json, SessionId, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use session::Wait;
use session::audit::Difference;
use session::readable::ReadableTurn;

use super::fleet::QueueStatus;

/// Answer to a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CommandReply {
    /// Id of the session.
    pub session_id: SessionId,
    /// Id of the command.
    pub command_id: CommandId,
    /// Whether its commit is in the log. A command that is only stored will be handled all the same.
    pub done: bool,
    /// The session's last `seq` after the commit; 0 if it is not known.
    pub seq: u64,
    /// The turn that began with the message; absent when the message waits for its turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// The slot of its commit, for the edge itself; 0 if it is not known.
    #[serde(skip)]
    pub slot: u64,
}

/// A page of sessions, the newest first.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SessionPage {
    /// The newest session comes first.
    pub sessions: Vec<SessionSummary>,
    /// `cursor` of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Sessions that are selected, on all pages; absent if it was not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
    /// Cells that did not answer, so that nothing of them is here; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_cells: Vec<CellName>,
}

/// Statistics of the sessions of a tenant.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StatsList {
    /// By agent and model.
    pub stats: Vec<AgentStats>,
    /// By the time of their start, the oldest first; absent if they were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intervals: Option<Vec<IntervalStats>>,
    /// Cells that did not answer, so that nothing of them is here; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_cells: Vec<CellName>,
}

/// Statistics of the sessions of one agent with one model.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AgentStats {
    /// Id of the agent.
    pub agent: String,
    /// The model that the sessions used last.
    pub model: String,
    /// Number of these sessions.
    pub sessions: u32,
    /// Number of turns that ended.
    pub turns: u32,
    /// Turns that ended, by stop reason.
    pub stop_reasons: BTreeMap<String, u32>,
    /// Turns that ended at a limit.
    pub limit_hits: u32,
    /// Turns that ended as completed although the user had to ask the agent to continue.
    pub premature: u32,
    /// Steps of the turns that ended.
    pub iterations: u32,
    /// Decisions by source: `explicit`, `pattern`, `tool_calls`, `length`, `message`, `limit`, `default`.
    pub decisions: BTreeMap<String, u32>,
    /// Number of calls of tools.
    pub tool_calls: u32,
    /// Sum of what the sessions used.
    #[serde(flatten)]
    pub spend: OwnSpend,
    /// Share of completed turns among those that ended; null if no turn ended.
    pub completed_rate: Option<f64>,
    /// Share of premature turns among the completed ones; null if there is none.
    pub premature_rate: Option<f64>,
}

/// Statistics of the sessions that started in one interval.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct IntervalStats {
    /// Begin of the interval.
    pub start: Timestamp,
    /// Number of these sessions.
    pub sessions: u32,
    /// Sessions whose last turn failed or ended at a limit.
    pub failed: u32,
    /// Sum of what the sessions used up to now.
    #[serde(flatten)]
    pub spend: OwnSpend,
}

/// Sum of what sessions used themselves. What a session delegated is in the line of the session that did it: the
/// subtrees of several sessions would count it more than once.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
pub struct OwnSpend {
    /// Tokens and money that these sessions used themselves; what they delegated is counted where it was done.
    pub spent_own: Spent,
    /// Sessions that are not in `spent_own`: an older version did not count it apart.
    pub uncounted: u32,
}

/// Effects that a repair performed again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RepairReport {
    /// Id of the session.
    pub session_id: SessionId,
    /// The effects, for people.
    pub performed: Vec<String>,
}

/// The transcript, as a model reads it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct History {
    /// Id of the session.
    pub session_id: SessionId,
    /// The messages, in the form of the session's provider-neutral transcript.
    #[schemars(with = "Vec<Map<String, Value>>")]
    pub messages: Vec<Json>,
    /// The last `seq` that the messages include.
    pub seq: u64,
}

/// A page of the transcript, as people read it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Transcript")]
pub struct TranscriptPage {
    /// Id of the session.
    pub session_id: SessionId,
    /// The turns, in their order.
    pub turns: Vec<ReadableTurn>,
    /// `after` of the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_after: Option<u32>,
    /// Whether the archive has removed parts of the session because of their age.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_incomplete: bool,
}

/// State of a session after its log was folded again, with the differences that were found.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ReplayReport {
    /// Id of the session.
    pub session_id: SessionId,
    /// The last slot that was folded.
    pub slot: u64,
    /// The last slot of the log.
    pub last_slot: u64,
    /// Phase after the commit of `slot`.
    pub phase: Phase,
    /// The last `seq` after `slot`.
    pub seq: u64,
    /// The commits of the log; absent if the request leaves them out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commits: Option<Vec<ReplayedCommit>>,
    /// Differences between this fold and what the writers stored.
    pub differs: Vec<Difference>,
    /// State in the form of a snapshot.
    #[schemars(with = "Map<String, Value>")]
    pub state: Json,
}

/// A commit without its contents.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct ReplayedCommit {
    /// Slot of the commit in the log.
    pub slot: u64,
    /// Time of the commit.
    pub time: Timestamp,
    /// Phase after the commit.
    pub phase: Phase,
    /// Types of the events.
    pub events: Vec<String>,
}

/// The whole result of a call, of which the model read only parts.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct FullResult {
    /// Id of the session.
    pub session_id: SessionId,
    /// Id of the call.
    pub call: CallId,
    /// The result, as the tool gave it.
    pub content: String,
}

/// A session with what it waits for, who works on it, and what failed last.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SessionDescription {
    /// The time of the edge's clock.
    pub now: Timestamp,
    /// The session as lists show it.
    #[serde(flatten)]
    pub summary: SessionSummary,
    /// Waits of the session, by `kind`. Empty if it has ended, or if an orchestrator has the next step to take.
    pub waits: Vec<WaitInfo>,
    /// Commands and results that no orchestrator has handled.
    pub waiting_inputs: u64,
    /// Due time of the timer of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer: Option<Timestamp>,
    /// The queues of which the session waits for a worker.
    pub queues: Vec<QueueStatus>,
    /// The last errors of the log, the newest first, from as far back as its newest page goes.
    pub errors: Vec<SessionError>,
    /// Dead letters of the session.
    pub dead_letters: Vec<DeadLetterName>,
    /// Reasons why the session makes no progress, for people, with advice.
    pub findings: Vec<Finding>,
}

/// Something that a session waits for, with its worker.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[schemars(rename = "SessionWait")]
pub struct WaitInfo {
    /// The wait of the session.
    #[serde(flatten)]
    pub wait: Wait,
    /// Time in the log at which the wait began; absent if that is on an older page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The worker that has the call now; absent where it waits in its queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<CallHolder>,
}

/// An error of the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionError {
    /// Time of its commit.
    pub time: Timestamp,
    /// The error that the log has.
    #[serde(flatten)]
    pub error: ErrorEvent,
}

/// A dead letter of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeadLetterName {
    /// `<session>/<kind>/<id>`, as `ailoop dead` takes it.
    pub name: String,
    /// Stable code of the reason.
    pub code: ErrorCode,
    /// Reason as text for people.
    pub reason: String,
}

/// Reason why a session makes no progress, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// The fact that was found.
    pub what: String,
    /// Advice on what to do.
    pub advice: String,
}

impl Finding {
    /// Makes a finding of two sentences.
    pub fn new(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what: what.into(), advice: advice.into() }
    }
}

/// The spans of a session.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct SessionTrace {
    /// Id of the session.
    pub session_id: SessionId,
    /// The turns, in their order.
    pub turns: Vec<TurnTrace>,
}

/// The trace of a turn.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TurnTrace {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Id of the trace, 32 hex digits.
    pub trace_id: String,
    /// Whether the turn has ended.
    pub has_ended: bool,
    /// Whether a collector gets these spans, where there is one.
    pub is_sampled: bool,
    /// Address of the trace for people; absent if none is configured, or if no collector gets the spans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The span of the turn comes first.
    pub spans: Vec<TraceSpan>,
}

/// A span of a turn.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TraceSpan {
    /// Id of the span, 16 hex digits.
    pub id: String,
    /// Id of the span above it; absent for the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Name of the span.
    pub name: String,
    /// Begin, in milliseconds since the epoch.
    pub start_ms: u64,
    /// End, in milliseconds since the epoch.
    pub end_ms: u64,
    /// Whether it has not ended; then `end_ms` is the time of the last commit.
    pub is_open: bool,
    /// Attributes of the span.
    pub attributes: Map<String, Value>,
    /// Error that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Gates that are open.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct GateList {
    /// The gates, the most urgent first.
    pub gates: Vec<PendingGate>,
    /// Cells that did not answer, so that nothing of them is here; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_cells: Vec<CellName>,
}

/// A gate that waits for a person, with its session.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PendingGate {
    /// Id of the session.
    pub session_id: SessionId,
    /// Id of its agent.
    pub agent: String,
    /// Beginning of the first message of the session.
    pub title: String,
    /// The gate that is open.
    #[serde(flatten)]
    pub gate: OpenGate,
}

/// Calls that wait for a client.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CallList {
    /// The calls, the most urgent first.
    pub calls: Vec<PendingCall>,
    /// Cells that did not answer, so that nothing of them is here; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_cells: Vec<CellName>,
}

/// A call that waits for a client, with its session.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct PendingCall {
    /// Id of the session.
    pub session_id: SessionId,
    /// Id of its agent.
    pub agent: String,
    /// Beginning of the first message of the session.
    pub title: String,
    /// The call that waits.
    #[serde(flatten)]
    pub call: OpenClientCall,
}
