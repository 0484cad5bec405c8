//! What can be fed to `decide`.

use std::sync::Arc;
use std::time::Duration;

use contract::Timestamp;
use contract::command::{Answer, Configure, ControlReason, Refusal, SendUserMessage, Start};
use contract::compose::Composed;
use contract::event::InputRef;
use contract::model::{Message, ModelFailed, ModelFinished};
use contract::tool::{ExtendToolCall, ToolResult, ToolSpec};

/// One input.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its identity: an input is folded once.
    pub reference: InputRef,
    /// For client commands: their sequence in the control stream.
    pub control_seq: Option<u64>,
    /// For client commands: when the control stream took them, by the server's clock.
    pub control_at: Option<Timestamp>,
    /// For client commands: when the edge took it in.
    pub sent: Option<Timestamp>,
    /// Who asks, for the log.
    pub by: Option<String>,
    /// Of a parent's command: which of all that it told its children this is.
    pub told: Option<u64>,
    /// The W3C `traceparent` that came with it; a turn that it begins stands under it.
    pub traceparent: Option<String>,
    /// Every tool of the tenant, where a turn may begin; `None`: the session keeps those that it has.
    pub tools: Option<Arc<Vec<ToolSpec>>>,
    /// How long the session stays as it is when it ends with this.
    pub archive_after: Duration,
    /// What it says.
    pub body: Body,
}

/// What an input says.
#[derive(Debug, Clone)]
pub enum Body {
    /// `start`, with what the composer made of it.
    Start(Box<StartInput>),
    /// `send_user_message`
    Send(SendUserMessage),
    /// `pause`
    Pause(ControlReason),
    /// `resume`
    Resume(ControlReason),
    /// `stop`
    Stop(ControlReason),
    /// `answer`
    Answer(Answer),
    /// `clear_history`
    Clear(ControlReason),
    /// `configure`, with what the composer made of it.
    Configure(Box<ConfigureInput>),
    /// `provide_tool_result`
    ToolResult(ToolResult),
    /// `extend_tool_call`
    Extend(ExtendToolCall),
    /// `model_finished`
    ModelFinished(Box<ModelFinished>),
    /// `model_failed`
    ModelFailed(ModelFailed),
    /// The session's timer; the input's id is its number.
    Timer,
}

/// A `start` and what was read for it.
#[derive(Debug, Clone)]
pub struct StartInput {
    /// The command.
    pub start: Start,
    /// The transcript of the session that it resumes from.
    pub history: Vec<Message>,
    /// The session's parts, or why there are none.
    pub composed: Result<Box<Composed>, Refusal>,
}

/// A `configure` and what was read for it.
#[derive(Debug, Clone)]
pub struct ConfigureInput {
    /// The command.
    pub configure: Configure,
    /// The session's parts, where another model or other features were asked for, or why there are none.
    pub composed: Option<Result<Box<Composed>, Refusal>>,
}
