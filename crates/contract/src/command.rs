//! Control: commands to a session, and reports of workers to it.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ai_config::AiConfig;
use crate::client_tool::ClientTool;
use crate::ids::{AgentId, CallId, CommandId, SessionId, TenantId, ToolName};
use crate::limits::CLIENT_TOOLS_MAX;
use crate::model::{Content, HistoryMessage, StreamingOverride};
use crate::timestamp::Timestamp;
use crate::version::{FOLD, VERSION};
use crate::words::words;
use crate::{ErrorCode, Json};

pub use crate::settings::ContinuationOverride;

words! {
    /// The verb of a control subject.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Verb {
        /// Begin a session: its first command.
        Start = "start",
        /// The user says something.
        SendUserMessage = "send_user_message",
        /// Open no new call.
        Pause = "pause",
        /// Let a paused session open calls again.
        Resume = "resume",
        /// Cancel what is in flight and end.
        Stop = "stop",
        /// Cancel the running turn; the session goes on.
        CancelTurn = "cancel_turn",
        /// A person's answer to a gate.
        Answer = "answer",
        /// Remove all messages but the system prompt.
        ClearHistory = "clear_history",
        /// Change settings of a session that runs.
        Configure = "configure",
        /// A client's answer to a call of a tool that a client brought.
        AnswerToolCall = "answer_tool_call",
        /// Result of a tool call, by an executor.
        ProvideToolResult = "provide_tool_result",
        /// An executor's word that a call may take longer.
        ExtendToolCall = "extend_tool_call",
        /// Reply to a model call, by a gateway.
        ModelFinished = "model_finished",
        /// Failed attempt of a model call, by a gateway.
        ModelFailed = "model_failed",
    }

    /// Its word in a subject.
    fn as_str;
}

/// Sender of an input; for a worker, whether the input ends its call.
enum Sender {
    Client,
    /// The worker of a call that goes on.
    WorkerMeanwhile,
    /// The worker of a call, with its result.
    WorkerAtTheEnd,
}

impl Verb {
    /// Whether it ends a call, so that its worker may send it by request.
    pub const fn is_result(self) -> bool {
        matches!(self.sender(), Sender::WorkerAtTheEnd)
    }

    /// Whether clients send it; the others come from workers, in any order.
    pub const fn is_client(self) -> bool {
        matches!(self.sender(), Sender::Client)
    }

    const fn sender(self) -> Sender {
        match self {
            Self::Start
            | Self::SendUserMessage
            | Self::Pause
            | Self::Resume
            | Self::Stop
            | Self::CancelTurn
            | Self::Answer
            | Self::ClearHistory
            | Self::Configure
            | Self::AnswerToolCall => Sender::Client,
            Self::ExtendToolCall => Sender::WorkerMeanwhile,
            Self::ProvideToolResult | Self::ModelFinished | Self::ModelFailed => Sender::WorkerAtTheEnd,
        }
    }
}

/// Head of every client command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandMeta {
    /// Version of the contract.
    pub v: u32,
    /// Time at which the edge accepted the command.
    pub time: Timestamp,
    /// Sender, for the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The edge replica that waits for [`CommandAck`] on `ai_rpc.done.<edge>.<id>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<CommandId>,
    /// Index among the commands of a parent to all its children, from 1; none for other senders. A command that arrives
    /// after one of a higher index changes nothing.
    #[serde(default, rename = "told", skip_serializing_if = "Option::is_none")]
    pub parent_command_number: Option<u64>,
    /// The agents that the sender may use: the loop refuses a command to a session of another one. None for senders
    /// without a limit: an operator, the fleet itself, and a client whose credential names no agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<BTreeSet<AgentId>>,
    /// [`FOLD`] of the sender; 0 where an older version sent it. A replica of a lower one that cannot read the command
    /// leaves it to newer replicas.
    #[serde(default)]
    pub fold: u32,
}

impl CommandMeta {
    /// Makes the head of a command of this version, without a sender.
    pub fn new(time: Timestamp) -> Self {
        Self { v: VERSION, time, by: None, edge: None, parent_command_number: None, agents: None, fold: FOLD }
    }
}

/// The fold of the sender of a command, where it is newer than this version. The body may be one that this version
/// cannot read.
pub fn newer_sender(payload: &[u8]) -> Option<u32> {
    #[derive(Deserialize)]
    struct FoldOnly {
        fold: u32,
    }
    #[derive(Deserialize)]
    struct MetaOnly {
        meta: FoldOnly,
    }
    let MetaOnly { meta: FoldOnly { fold } } = serde_json::from_slice(payload).ok()?;
    (fold > FOLD).then_some(fold)
}

/// A command of a client, as published on its control subject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Command<T> {
    /// Sender, time and version of the command.
    pub meta: CommandMeta,
    /// Fields of the verb, beside those of `meta`.
    #[serde(flatten)]
    pub body: T,
}

/// Payload of `start`: everything that a new session is given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Start {
    /// Key or alias of the agent; the default agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// The first message of the user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Content>,
    /// Whether the session waits for more messages after its first turn.
    pub interactive: bool,
    /// History to begin with: messages with `role` and `content`, replies also with `tool_calls`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<HistoryMessage>,
    /// A session whose transcript this one begins with, before `messages`: `{session_id, at?}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_from: Option<ResumeFrom>,
    /// Id of the model; that of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"\S"))]
    pub model: Option<String>,
    /// Parameters for the provider, such as `temperature`; they go over those of `ai_config`.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// Prompt and requests to the model, where they differ from the agent's.
    #[serde(skip_serializing_if = "AiConfig::is_empty")]
    #[schemars(with = "Map<String, Value>")]
    pub ai_config: AiConfig,
    /// Continuation settings that replace the agent's, one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub continuation: Option<ContinuationOverride>,
    /// Prompt features to `enable` and `disable`.
    #[serde(skip_serializing_if = "Features::is_empty")]
    pub features: Features,
    /// Names of the tools that the session may use, of those of its agent; all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<ToolName>>")]
    pub tools: Option<Vec<String>>,
    /// Tools that the client brings, and whose calls it answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = CLIENT_TOOLS_MAX))]
    pub client_tools: Vec<ClientTool>,
    /// Streaming settings of replies; they replace those of `ai_config`, field by field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub streaming: Option<StreamingOverride>,
    /// Call of another session that this session performs. Only the loop sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub parent: Option<Parent>,
}

/// The call that a child session performs, and what it may use for that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parent {
    /// The session that asked, of the same tenant.
    pub session_id: SessionId,
    /// Its call; the child's end is the result.
    pub call: CallId,
    /// The slot in which the call was opened.
    pub slot: u64,
    /// The agents from the first session down to the one that asked. None of them is asked again.
    pub agents: Vec<AgentId>,
    /// Budget that is reserved for the child.
    #[serde(default)]
    pub share: Budget,
}

/// Budget that a parent reserves for a child, out of the rest of its own turn.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Budget {
    /// Tokens of requests and replies together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Cost limit in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
    /// Number of tool calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u32>,
    /// Seconds of wall clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
}

/// Payload of `configure`: settings that are absent stay unchanged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Configure {
    /// The agent that goes on with the session, with its prompt, tools and settings; its own model, where none is
    /// given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Continuation settings and limits that are replaced, one by one. They hold at once, also for a turn that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub continuation: Option<ContinuationOverride>,
    /// Prompt features to `enable` and `disable`; the prompt is composed anew.
    #[serde(skip_serializing_if = "Features::is_empty")]
    pub features: Features,
    /// The model of the calls that open from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"\S"))]
    pub model: Option<String>,
    /// Prompt and requests to the model; they replace the session's own settings, one by one. The prompt is composed
    /// anew.
    #[serde(skip_serializing_if = "AiConfig::is_empty")]
    #[schemars(with = "Map<String, Value>")]
    pub ai_config: AiConfig,
    /// Tools of the client, in place of all that it brought before. They hold from the next model call.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = CLIENT_TOOLS_MAX))]
    pub client_tools: Option<Vec<ClientTool>>,
}

impl Start {
    /// The session's own settings of prompt and requests, with its parameters and its streaming.
    pub fn own_ai_config(&self) -> AiConfig {
        let streaming = self.streaming.unwrap_or_default();
        AiConfig { parameters: self.parameters.clone(), streaming, ..AiConfig::default() }.over(self.ai_config.clone())
    }
}

/// An older session, as far as it is taken over. It goes on by itself, unchanged; nothing that it did is done again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeFrom {
    /// The session, of the same tenant.
    pub session_id: SessionId,
    /// The last slot of its log that counts; its end where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
}

/// Prompt features by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Features {
    /// Names of features that are switched on.
    pub enable: Vec<String>,
    /// Names of features that are switched off.
    pub disable: Vec<String>,
}

impl Features {
    /// Whether nothing is switched.
    pub fn is_empty(&self) -> bool {
        self.enable.is_empty() && self.disable.is_empty()
    }

    /// Both, where the later one wins.
    #[must_use]
    pub fn and(self, later: &Self) -> Self {
        let kept = |mine: Vec<String>, wins: &[String], loses: &[String]| {
            let mut list: Vec<String> = mine.into_iter().filter(|name| !loses.contains(name)).collect();
            list.extend(wins.iter().filter(|name| !list.contains(name)).cloned().collect::<Vec<_>>());
            list
        };
        Self {
            enable: kept(self.enable, &later.enable, &later.disable),
            disable: kept(self.disable, &later.disable, &later.enable),
        }
    }
}

/// Handling of a message that arrives during a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageMode {
    /// Seen by the model at the start of the next step.
    #[default]
    Steer,
    /// Begins the next turn.
    Queue,
    /// Cancels the model call in flight and begins a new step.
    Interrupt,
}

/// Payload of `send_user_message`: one message of the user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendUserMessage {
    /// The message, as text or as parts.
    pub content: Content,
    /// Handling of the message while a turn runs; `steer`.
    #[serde(default)]
    pub mode: MessageMode,
    /// Tools of the client, in place of all that it brought before. They hold from the step that reads the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = CLIENT_TOOLS_MAX))]
    pub client_tools: Option<Vec<ClientTool>>,
}

impl SendUserMessage {
    /// A message that changes no tools.
    pub fn new(content: Content, mode: MessageMode) -> Self {
        Self { content, mode, client_tools: None }
    }
}

/// Payload of `pause`, `resume`, `stop`, `cancel_turn` and `clear_history`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ControlReason {
    /// Reason, for the log; the loop does not interpret it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

words! {
    /// Decision of a person at a gate.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    #[schemars(inline)]
    pub enum AnswerDecision {
        /// The call may run.
        Approve = "approve",
        /// The call must not run; a question stays without an answer.
        Deny = "deny",
        /// Answer to a question, in `content`.
        Answer = "answer",
    }

    /// Its word in a command.
    fn as_str;
}

/// Payload of `answer`: a person's decision at a gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The gate: the id of the call that waits.
    pub gate: CallId,
    /// SHA-256 of the arguments that the person saw, as the gate has it; an answer to other arguments is refused.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub arguments_sha256: String,
    /// Whether the gate is approved or denied; `answer` is for questions.
    pub decision: AnswerDecision,
    /// Arguments in place of the model's; with `approve`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub arguments: Option<Json>,
    /// The answer to a question, which the model reads; with `answer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// A note; the model reads that of a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Answer {
    /// Makes an answer that has only a decision.
    pub fn new(gate: CallId, arguments_sha256: String, decision: AnswerDecision) -> Self {
        Self { gate, arguments_sha256, decision, arguments: None, content: None, note: None }
    }
}

/// Acknowledgement of a command by the loop, with its outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandAck {
    /// Verb of the accepted command.
    pub verb: Verb,
    /// Id of the command, for idempotent repeats.
    pub id: CommandId,
    /// Tenant that owns the session.
    pub tenant: TenantId,
    /// Session that the command is for.
    pub session: SessionId,
    /// The slot of its commit.
    pub slot: u64,
    /// The session's last `seq` after that commit.
    pub seq: u64,
    /// The turn that began with the message of the command; none when it waits for its turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u32>,
    /// Reason why the command changed nothing; none when it took effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
}

/// Reason why a command changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Stable error code; see [`ErrorCode`].
    pub code: ErrorCode,
    /// Explanation for people: what failed, and what to do.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_json_has_meta_beside_its_payload() {
        let text = r#"{"meta":{"v":1,"time":"2024-01-15T10:30:45.123Z"},"content":"hi"}"#;
        let command: Command<SendUserMessage> = serde_json::from_str(text).unwrap();
        assert_eq!(command.body.content, Content::from("hi"));
        assert_eq!(command.body.mode, MessageMode::Steer);
    }
}
