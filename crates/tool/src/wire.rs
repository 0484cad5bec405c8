//! The words of the protocol between ailoop and a tool: subjects, headers, endpoint metadata.

/// The queue group in which the replicas of a tool share its calls.
pub const QUEUE: &str = "tools";
/// Where a tool says that it came or went, so that nobody has to wait for the next poll.
pub const ANNOUNCE: &str = "ai_rpc.tool.announce";

/// `ai_tool.<tenant>.<tool>`: where calls arrive.
pub fn call_subject(tenant: &str, tool: &str) -> String {
    format!("ai_tool.{tenant}.{tool}")
}

/// `ai_tool_cancel.<tenant>.<tool>`: where it is said that a call is no longer wanted.
pub fn cancel_subject(tenant: &str, tool: &str) -> String {
    format!("ai_tool_cancel.{tenant}.{tool}")
}

/// `ai_tool_probe.<tenant>.<tool>`: where a `reconcilable` tool is asked what became of a call.
pub fn probe_subject(tenant: &str, tool: &str) -> String {
    format!("ai_tool_probe.{tenant}.{tool}")
}

/// Header names.
pub mod header {
    /// The call's id, unique in the fleet: the key under which an `idempotent` tool takes effect once.
    pub const CALL: &str = "Ailoop-Call";
    /// The session.
    pub const SESSION: &str = "Ailoop-Session";
    /// RFC 3339; when the session started.
    pub const SESSION_STARTED: &str = "Ailoop-Session-Started";
    /// The agent.
    pub const AGENT: &str = "Ailoop-Agent";
    /// `<attempt>.<delivery>`
    pub const ATTEMPT: &str = "Ailoop-Attempt";
    /// RFC 3339; later the answer is no longer wanted.
    pub const DEADLINE: &str = "Ailoop-Deadline";
    /// On a reply: it is an error that the model reads.
    pub const ERROR: &str = "Ailoop-Error";
    /// On a reply that is an error: `unknown` when nobody knows whether the call took effect.
    pub const OUTCOME: &str = "Ailoop-Outcome";
    /// On a reply: it is not the last one.
    pub const PROGRESS: &str = "Ailoop-Progress";
    /// On a reply that is not the last one: `<service name>.<service id>` of the replica that works on the call, so that its
    /// loss is noticed at once.
    pub const INSTANCE: &str = "Ailoop-Instance";
    /// On the answer to a question of the services protocol that names a call by [`CALL`]: `1` where this replica works on
    /// it, `0` where it does not. So a call that got lost is known long before its deadline.
    pub const RUNNING: &str = "Ailoop-Running";
    /// W3C trace context.
    pub const TRACEPARENT: &str = "traceparent";
}

/// The value of [`header::OUTCOME`] for a call of which nobody knows whether it took effect.
pub const OUTCOME_UNKNOWN: &str = "unknown";
/// The value of [`header::OUTCOME`] on the answer to a probe: the call took no effect, and never will.
pub const OUTCOME_NONE: &str = "none";

/// Keys of the endpoint metadata by which a tool describes itself.
pub mod metadata {
    /// Name.
    pub const TOOL: &str = "ailoop.tool";
    /// Description.
    pub const DESCRIPTION: &str = "ailoop.description";
    /// JSON Schema of the arguments.
    pub const PARAMETERS: &str = "ailoop.parameters";
    /// Effect class.
    pub const EFFECT: &str = "ailoop.effect";
    /// Approval.
    pub const APPROVAL: &str = "ailoop.approval";
    /// Time-out in seconds.
    pub const TIMEOUT: &str = "ailoop.timeout";
    /// Bytes of a result that the model reads.
    pub const MAX_OUTPUT: &str = "ailoop.max_output";
    /// Prompt text.
    pub const INSTRUCTIONS: &str = "ailoop.instructions";
}
