//! The tool call: the description of a tool, the request to an executor, and its result.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::hash::sha256_hex;
use crate::ids::{CallId, SessionId, TenantId, ToolName};
use crate::limits;
use crate::model::{ItemMeta, ResultMeta};
use crate::spent::Spent;
use crate::words::words;
use crate::{ErrorCode, Json, Timestamp};

words! {
    /// Effect class of a tool: how a call is handled when nobody knows whether it took effect.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[schemars(rename = "Effect")]
    pub enum EffectClass {
        /// It changes nothing: run it again.
        Pure = "pure",
        /// It takes effect once per call id: run it again with the same id.
        Idempotent = "idempotent",
        /// It must not run twice: say that the outcome is unknown.
        #[default]
        AtMostOnce = "at_most_once",
        /// It must not run twice, and the tool can report the outcome of a call afterwards.
        Reconcilable = "reconcilable",
    }

    /// Its word in the description of a tool.
    fn as_str;
}

impl EffectClass {
    /// Whether a call may change something.
    pub const fn takes_effect(self) -> bool {
        match self {
            Self::Pure => false,
            Self::Idempotent | Self::AtMostOnce | Self::Reconcilable => true,
        }
    }

    /// Whether a call may be sent again under the same id.
    pub const fn may_repeat(self) -> bool {
        match self {
            Self::Pure | Self::Idempotent => true,
            Self::AtMostOnce | Self::Reconcilable => false,
        }
    }
}

words! {
    /// Whether a person must approve each call of a tool.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[schemars(inline)]
    pub enum ApprovalPolicy {
        /// Nobody is asked before a call.
        #[default]
        Never = "never",
        /// Each call waits for a person.
        Always = "always",
    }

    /// Its word in a message.
    fn as_str;
}

/// A tool of the fleet: the value of KV `ai_loop_tools`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FleetTool")]
pub struct ToolSpec {
    /// Name of the tool.
    pub name: ToolName,
    /// Description for the model: what the tool does and when to use it.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the arguments object.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub parameters: Json,
    /// Effect class, which decides whether a lost call may be repeated.
    #[serde(default)]
    pub effect: EffectClass,
    /// Whether a person must approve each call of a tool.
    #[serde(default)]
    pub approval: ApprovalPolicy,
    /// Milliseconds that one call may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Bytes of a result that the model reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output: Option<usize>,
    /// Text that is added to the prompt of agents that have this tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The version that the tool announces.
    #[serde(default)]
    pub version: String,
}

impl ToolSpec {
    /// Timeout of one call: [`limits::TOOL_TIMEOUT_DEFAULT`] by default, at most [`limits::TOOL_TIMEOUT_MAX`].
    pub fn timeout(&self) -> Duration {
        self.timeout_ms.map_or(limits::TOOL_TIMEOUT_DEFAULT, Duration::from_millis).min(limits::TOOL_TIMEOUT_MAX)
    }

    /// Bytes of a result that the model reads.
    pub fn output_bytes_max(&self) -> usize {
        self.max_output.unwrap_or(limits::TOOL_OUTPUT_BYTES_MAX).min(limits::TOOL_OUTPUT_BYTES_MAX)
    }

    /// Whether a person must approve a call before it runs without a session.
    pub const fn needs_approval_outside_sessions(&self) -> bool {
        match self.approval {
            ApprovalPolicy::Always => true,
            ApprovalPolicy::Never => self.effect.takes_effect(),
        }
    }
}

/// SHA-256 in hex of an arguments object, byte for byte: what an approval is bound to.
pub fn arguments_sha256(arguments: &Json) -> String {
    sha256_hex(arguments.get().as_bytes())
}

/// A tool call on its way to an executor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolItem {
    /// Ids of the call and its deadline.
    pub meta: ItemMeta,
    /// Name of the tool that is called.
    pub tool: ToolName,
    /// Arguments of the call: a JSON object.
    pub arguments: Json,
    /// Effect class, which decides whether a lost call may be repeated.
    pub effect: EffectClass,
    /// Bytes of a result that the model reads.
    pub max_output: usize,
    /// Milliseconds that it may take without progress; each report of progress moves its deadline.
    #[serde(default)]
    pub timeout_ms: u64,
    /// Start time of the session, which tells it from an earlier session of the same id. None from older orchestrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_started: Option<Timestamp>,
    /// The id of the commit that opened the call first. Call ids are counted, so a log that was restored to an older
    /// state assigns them again; the id of a commit is never assigned twice. Empty from older orchestrators.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub opened_by: String,
    /// Time of that commit. None if unknown, and from older orchestrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_at: Option<Timestamp>,
}

impl ToolItem {
    /// Makes the head of a result of this item.
    pub fn result_meta(&self) -> ResultMeta {
        self.meta.of_result(&self.opened_by)
    }

    /// The call's id in the whole fleet: the same for every try, and another one for every other call of any tenant and
    /// of any session, also of an earlier one with the same id, and of a history that was lost. Letters, digits, `-`
    /// and `_`.
    pub fn call_key(&self, tenant: &TenantId, session: &SessionId) -> String {
        let call = &self.meta.call;
        let origin = self.origin();
        if origin == NO_ORIGIN {
            return format!("{session}-{call}");
        }
        let identity = sha256_hex(format!("{tenant}.{session}.{origin}").as_bytes());
        format!("{session}-{call}-{}", &identity[..CALL_KEY_DIGITS])
    }

    /// Text that tells this call from others of the same session id and call id: the commit that opened it, else the
    /// milliseconds of its session's start, else `0`. Letters and digits.
    pub fn origin(&self) -> String {
        match self.session_started {
            _ if !self.opened_by.is_empty() => self.opened_by.clone(),
            Some(started) => started.as_millis().to_string(),
            None => NO_ORIGIN.to_owned(),
        }
    }
}

/// Origin of a call without a known commit or session start.
const NO_ORIGIN: &str = "0";

/// Digits of a call's key that stand for its tenant, its session and the commit that opened it.
const CALL_KEY_DIGITS: usize = 16;

/// `extend_tool_call`: of executors only. A call that shows progress may take longer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExtendToolCall {
    /// Call and attempt that this answers.
    pub meta: ResultMeta,
    /// Its new deadline; the end of its turn stays the last word.
    pub deadline: Timestamp,
}

/// A result as the tool gave it, where the model reads only parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FullResultRef {
    /// Id of the object in `ai_loop_results`.
    pub object: String,
    /// Length of the full result in bytes.
    pub bytes: u64,
}

impl FullResultRef {
    /// The id under which the result of a call is kept: a reader that knows the call finds it, and no other session
    /// can name it, also no later one of the same id. `started` is when the session started, where that is known.
    pub fn id(tenant: &TenantId, session: &SessionId, started: Option<Timestamp>, call: &CallId) -> String {
        let started = started.map(|started| format!(".{}", started.as_millis())).unwrap_or_default();
        sha256_hex(format!("{tenant}.{session}.{call}{started}").as_bytes())
    }
}

words! {
    /// Outcome of a tool call.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Outcome {
        /// It ran and answered.
        Ok = "ok",
        /// It ran, or could not run, and says why.
        Error = "error",
        /// A person denied the call.
        Denied = "denied",
        /// The deadline of the call passed.
        Timeout = "timeout",
        /// The call was cancelled.
        Cancelled = "cancelled",
        /// Nobody knows whether it took effect; also an outcome of a newer executor that this version does not know.
        #[serde(other)]
        Unknown = "unknown",
    }

    /// Its word in an event.
    fn as_str;
}

/// `provide_tool_result`: of executors only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// Call and attempt that this answers.
    pub meta: ResultMeta,
    /// Outcome of the call.
    pub outcome: Outcome,
    /// Text that the model reads; it may be JSON.
    #[serde(default)]
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
    /// Resources that the child session used; only for calls that a child session performs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<ChildUsage>,
}

/// Resources that a child session used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(default)]
pub struct ChildUsage {
    /// Tokens and money, its own children's included.
    pub spent: Spent,
    /// Number of tool calls of the child.
    pub tool_calls: u32,
}

/// The tool by which an agent asks another one. It is listed with the tools and performed by the loop.
pub const DELEGATE: &str = "delegate";

/// Text that the model reads, after the reason, about a call that may have taken effect.
pub const UNKNOWN_OUTCOME_TEXT: &str = "nobody knows whether it took effect. Find out before calling again.";

/// The tool that reads the rest of a shortened result: the note in such a result names it.
pub const READ_RESULT: &str = "read_result";

/// The tool by which an agent asks a person. It is listed with the tools and performed by the loop.
pub const ASK_USER: &str = "ask_user";

/// The arguments of [`ASK_USER`]: a question of the model to a person.
#[derive(Debug, Default, Deserialize)]
pub struct GateQuestion {
    /// Text of the question.
    pub question: String,
    /// Answers that it proposes; empty for a free text.
    #[serde(default)]
    pub choices: Vec<String>,
}

impl GateQuestion {
    /// Reads the arguments; those that cannot be read are the text of the question.
    pub fn parse(arguments: &str) -> Self {
        serde_json::from_str(arguments).unwrap_or_else(|_| Self { question: arguments.to_owned(), choices: Vec::new() })
    }
}

/// Names of the headers of a request to a tool.
pub mod header {
    /// The call's id: the key under which an `idempotent` tool takes effect once.
    pub const CALL: &str = "Ailoop-Call";
    /// Id of the session that calls.
    pub const SESSION: &str = "Ailoop-Session";
    /// Start time of the session, in RFC 3339.
    pub const SESSION_STARTED: &str = "Ailoop-Session-Started";
    /// Id of the agent that calls.
    pub const AGENT: &str = "Ailoop-Agent";
    /// Try of the call: `<orchestrator's attempt>.<delivery>`.
    pub const ATTEMPT: &str = "Ailoop-Attempt";
    /// On a work item: it was published before, and may have been dealt with.
    pub const AGAIN: &str = "Ailoop-Again";
    /// On a work item: the orchestrator that published it, to which the worker sends the result.
    pub const REPLICA: &str = "Ailoop-Replica";
    /// On a model call's work item: its model, by which a gateway shares out its places.
    pub const MODEL: &str = "Ailoop-Model";
    /// Deadline, after which the answer is no longer wanted, in RFC 3339.
    pub const DEADLINE: &str = "Ailoop-Deadline";
    /// On a reply: it is an error that the model reads.
    pub const ERROR: &str = "Ailoop-Error";
    /// On a reply that is an error: [`OUTCOME_UNKNOWN`](super::OUTCOME_UNKNOWN) when nobody knows whether the call took
    /// effect; on the answer to a probe [`OUTCOME_NONE`](super::OUTCOME_NONE) when it took none.
    pub const OUTCOME: &str = "Ailoop-Outcome";
    /// On a reply: it is not the last one.
    pub const PROGRESS: &str = "Ailoop-Progress";
    /// On a progress reply: `<service name>.<service id>` of the replica that works on the call.
    pub const INSTANCE: &str = "Ailoop-Instance";
    /// On the answer to a question of the services protocol that names a call by [`CALL`]: `1` where this replica works
    /// on it, `0` where it does not.
    pub const RUNNING: &str = "Ailoop-Running";
    /// Error header of the NATS services libraries.
    pub const SERVICE_ERROR: &str = "Nats-Service-Error";
    /// Trace context of the call, as W3C defines it.
    pub const TRACEPARENT: &str = "traceparent";
}

/// Value of [`header::OUTCOME`] when nobody knows whether the call took effect.
pub const OUTCOME_UNKNOWN: &str = "unknown";
/// The value of [`header::OUTCOME`] on the answer to a probe: the call took no effect, and never will.
pub const OUTCOME_NONE: &str = "none";

/// Names of the endpoint metadata by which a tool describes itself.
pub mod metadata {
    /// Name of the tool.
    pub const TOOL: &str = "ailoop.tool";
    /// Description that the model reads.
    pub const DESCRIPTION: &str = "ailoop.description";
    /// JSON Schema of the arguments object.
    pub const PARAMETERS: &str = "ailoop.parameters";
    /// Effect class, as [`EffectClass`](super::EffectClass) writes it.
    pub const EFFECT: &str = "ailoop.effect";
    /// Approval policy, as [`ApprovalPolicy`](super::ApprovalPolicy) writes it.
    pub const APPROVAL: &str = "ailoop.approval";
    /// Timeout of a call in seconds.
    pub const TIMEOUT: &str = "ailoop.timeout";
    /// Bytes of a result.
    pub const MAX_OUTPUT: &str = "ailoop.max_output";
    /// Text that the prompt says of the tool.
    pub const INSTRUCTIONS: &str = "ailoop.instructions";
}
