//! The session API, declared once. A method is a row of the table in `method.rs`: its name, who may use it, its routes,
//! its parameters, its result, and one sentence.
//!
//! From the row follow:
//!
//! - the routes below `/v1` of the edge, with the parameters of their path, query and body: [`ROUTES`],
//! - the `OpenAPI` document that the edge serves, `sdk/openapi.json`: [`openapi::document`],
//! - the methods and types of the SDKs for Python and TypeScript, which `sdk/generate.py` makes of that document,
//! - the gRPC service and its messages, `proto/ailoop/v2/ailoop.proto`: [`protobuf::file`],
//! - the scopes that a credential needs: [`Method::scopes`].
//!
//! Nothing here does IO. The edge performs the methods, and its protocol adapters translate to them.

mod cursor;
mod method;
pub mod openapi;
mod params;
pub mod protobuf;
mod results;
mod route;
mod schema;
mod schemas;
mod scope;
mod verb;

pub use cursor::ListCursor;
pub use method::Method;
pub use params::{
    CommandFields, DeadLetterParams, DescribeAgentParams, ListDeadLettersParams, ListMailParams, ListPendingParams,
    ListSessionsParams, NewSessionAddress, NoParams, ReplayParams, ReplyMailParams, ResetBudgetParams, SendMailParams,
    SessionAddress, SessionParams, StatsParams, TestReplyParams, ToolResultParams, TranscriptParams, TryToolParams,
    WatchParams,
};
pub use results::{
    AgentDescription, AgentInfo, AgentList, AgentStats, BudgetList, CallList, Caller, CommandReply, DeadLetterInfo,
    DeadLetterList, DeadLetterName, DeadLetterRetry, Finding, FleetStatus, FleetToolList, FullResult, GateList,
    History, IntervalStats, MailboxPage, ModelList, OwnSpend, PendingCall, PendingGate, Problem, QueueDepth, QueueList,
    QueueStatus, RepairReport, ReplayReport, ReplayedCommit, ReplicaInfo, ReplyDecision, SessionDescription,
    SessionError, SessionNumbers, SessionPage, SessionTrace, StatsList, StorageStatus, ToolReplicaList, TraceSpan,
    TranscriptPage, TriedTool, TurnTrace, WaitInfo,
};
pub use route::{Field, HttpRoute, ROUTES, ValueKind, fields_of};
pub use scope::Scope;
pub use verb::HttpVerb;
