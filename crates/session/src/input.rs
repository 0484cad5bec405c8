//! Inputs of `decide`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use contract::client_tool::AnswerToolCall;
use contract::command::{Answer, Configure, ControlReason, Refusal, SendUserMessage, Start};
use contract::compose::Composed;
use contract::event::InputRef;
use contract::model::{Message, ModelFailed, ModelFinished, ResultMeta};
use contract::tool::{ExtendToolCall, ToolResult, ToolSpec};
use contract::{AgentId, Timestamp};

/// A command, a result or a timer, with what was read for its decision.
#[derive(Debug, Clone)]
pub struct Input {
    /// Identity of the input; each input is applied once.
    pub reference: InputRef,
    /// Sequence in the control stream, of a client command before which all others of the session are handled.
    pub control_seq: Option<u64>,
    /// Time at which the control stream stored that command, by the server's clock.
    pub control_at: Option<Timestamp>,
    /// Time at which the edge received the input, if it is a client command.
    pub sent: Option<Timestamp>,
    /// The sender, for the log.
    pub by: Option<String>,
    /// The agents that the sender may use, of a client command; all of them where none are given.
    pub agents: Option<BTreeSet<AgentId>>,
    /// Index among the commands of the parent to all its children, of a parent's command.
    pub parent_command_number: Option<u64>,
    /// W3C `traceparent` of the input, which is the parent of a turn that it begins.
    pub traceparent: Option<String>,
    /// Every tool of the tenant if a turn may begin; with `None` the session keeps its tools.
    pub tools: Option<Arc<Vec<ToolSpec>>>,
    /// Time from the end of the session until it is archived, if this input ends it.
    pub archive_after: Duration,
    /// Time without an input after which the log of an idle session is compacted.
    pub compact_after: Duration,
    /// The payload of the input.
    pub body: Body,
}

/// Payload of an input, by its kind.
#[derive(Debug, Clone)]
pub enum Body {
    /// `start`, with the reply of the composer.
    Start(Box<StartInput>),
    /// Command `send_user_message`: a message of the user.
    Send(SendUserMessage),
    /// Command `pause`: open no new call.
    Pause(ControlReason),
    /// Command `resume`: open calls again.
    Resume(ControlReason),
    /// Command `stop`: end the session.
    Stop(ControlReason),
    /// Command `cancel_turn`: end the running turn.
    CancelTurn(ControlReason),
    /// Command `answer`: a decision at a gate.
    Answer(Answer),
    /// Command `answer_tool_call`: a client's answer to a call of a tool that a client brought.
    AnswerToolCall(AnswerToolCall),
    /// Command `clear_history`: remove the transcript.
    Clear(ControlReason),
    /// `configure`, with the reply of the composer.
    Configure(Box<ConfigureInput>),
    /// Report `provide_tool_result` of an executor.
    ToolResult(ToolResult),
    /// Report `extend_tool_call` of an executor.
    Extend(ExtendToolCall),
    /// Report `model_finished` of a gateway.
    ModelFinished(Box<ModelFinished>),
    /// Report `model_failed` of a gateway.
    ModelFailed(ModelFailed),
    /// The session's timer; the input's id is its number.
    Timer,
}

impl Body {
    /// The call and attempt that a report of a worker is of; none for any other input.
    pub(crate) fn report(&self) -> Option<&ResultMeta> {
        match self {
            Self::ToolResult(result) => Some(&result.meta),
            Self::Extend(extension) => Some(&extension.meta),
            Self::ModelFinished(finished) => Some(&finished.meta),
            Self::ModelFailed(failed) => Some(&failed.meta),
            Self::Start(_)
            | Self::Send(_)
            | Self::Pause(_)
            | Self::Resume(_)
            | Self::Stop(_)
            | Self::CancelTurn(_)
            | Self::Answer(_)
            | Self::AnswerToolCall(_)
            | Self::Clear(_)
            | Self::Configure(_)
            | Self::Timer => None,
        }
    }
}

/// A `start` with its resumed history and its composed prompt.
#[derive(Debug, Clone)]
pub struct StartInput {
    /// The command, as the client sent it.
    pub start: Start,
    /// The transcript of the session that it resumes from.
    pub history: Vec<Message>,
    /// Agent, model and prompt of the session, or why they cannot be composed.
    pub composed: Result<Box<Composed>, Refusal>,
}

/// A `configure` with its composed prompt.
#[derive(Debug, Clone)]
pub struct ConfigureInput {
    /// The command, as the client sent it.
    pub configure: Configure,
    /// Agent, model and prompt if they change, or why they cannot be composed.
    pub composed: Option<Result<Box<Composed>, Refusal>>,
}
