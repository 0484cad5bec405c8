//! Names of the protocol between ailoop and a tool: subjects, headers, endpoint metadata.

/// The queue group in which the replicas of a tool share its calls.
pub const QUEUE: &str = "tools";
/// Subject on which a tool announces its start and end, so that the fleet need not wait for the next poll.
pub const ANNOUNCE: &str = "ai_rpc.tool.announce";

/// Subject of calls: `ai_tool.<tenant>.<tool>`.
pub fn call_subject(tenant: &str, tool: &str) -> String {
    format!("ai_tool.{tenant}.{tool}")
}

/// Subject of cancels: `ai_tool_cancel.<tenant>.<tool>`.
pub fn cancel_subject(tenant: &str, tool: &str) -> String {
    format!("ai_tool_cancel.{tenant}.{tool}")
}

/// Subject of probes of lost calls of a `reconcilable` tool: `ai_tool_probe.<tenant>.<tool>`.
pub fn probe_subject(tenant: &str, tool: &str) -> String {
    format!("ai_tool_probe.{tenant}.{tool}")
}

/// Names of the headers of calls and replies.
pub mod header {
    /// The call's id, unique in the fleet: the key under which an `idempotent` tool takes effect once.
    pub const CALL: &str = "Ailoop-Call";
    /// Id of the calling session.
    pub const SESSION: &str = "Ailoop-Session";
    /// RFC 3339; when the session started.
    pub const SESSION_STARTED: &str = "Ailoop-Session-Started";
    /// Id of the calling agent.
    pub const AGENT: &str = "Ailoop-Agent";
    /// Number of the try, as `<attempt>.<delivery>`.
    pub const ATTEMPT: &str = "Ailoop-Attempt";
    /// Deadline in RFC 3339, after which the answer is no longer wanted.
    pub const DEADLINE: &str = "Ailoop-Deadline";
    /// On a reply: marks an error that the model reads.
    pub const ERROR: &str = "Ailoop-Error";
    /// On a reply that is an error: `unknown` when it is unknown whether the call took effect.
    pub const OUTCOME: &str = "Ailoop-Outcome";
    /// On a reply: marks one that is not the last.
    pub const PROGRESS: &str = "Ailoop-Progress";
    /// On a reply that is not the last: `<service name>.<service id>` of the replica that works on the call, so that
    /// its loss is noticed at once.
    pub const INSTANCE: &str = "Ailoop-Instance";
    /// On the answer to a query of the services protocol that names a call by [`CALL`]: `1` where this replica works on
    /// it, `0` where it does not. So a lost call is found long before its deadline.
    pub const RUNNING: &str = "Ailoop-Running";
    /// W3C trace context of the caller.
    pub const TRACEPARENT: &str = "traceparent";
}

/// Value of [`header::OUTCOME`] for a call whose outcome is unknown.
pub const OUTCOME_UNKNOWN: &str = "unknown";
/// Value of [`header::OUTCOME`] on the answer to a probe: the call took no effect, and never will.
pub const OUTCOME_NONE: &str = "none";

/// Keys of the endpoint metadata by which a tool describes itself.
pub mod metadata {
    /// Name of the tool.
    pub const TOOL: &str = "ailoop.tool";
    /// Description for the model.
    pub const DESCRIPTION: &str = "ailoop.description";
    /// JSON Schema of the arguments.
    pub const PARAMETERS: &str = "ailoop.parameters";
    /// Effect class of its calls.
    pub const EFFECT: &str = "ailoop.effect";
    /// Whether a person is asked before each call.
    pub const APPROVAL: &str = "ailoop.approval";
    /// Timeout of a call in seconds.
    pub const TIMEOUT: &str = "ailoop.timeout";
    /// Bytes of a result that the model reads.
    pub const MAX_OUTPUT: &str = "ailoop.max_output";
    /// Text for the prompt of agents that have the tool.
    pub const INSTRUCTIONS: &str = "ailoop.instructions";
}
