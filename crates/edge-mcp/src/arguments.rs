//! The arguments of the tools, and what a call carries beside them.

use contract::SessionId;
use contract::command::{Answer, AnswerDecision, MessageMode};
use contract::{AgentId, CallId};
use serde::Deserialize;

/// Longest wait of `session_status`, in seconds. Many hosts give up on a call after a minute.
pub(super) const WAIT_SECONDS_MAX: u64 = 50;

/// Arguments of the tool of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentArguments {
    pub(super) prompt: String,
    pub(super) session_id: Option<SessionId>,
}

/// Arguments of the tool `start_session`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StartArguments {
    pub(super) agent: Option<AgentId>,
    pub(super) prompt: String,
}

/// Arguments of the tool `session_status`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusArguments {
    pub(super) session_id: SessionId,
    #[serde(default)]
    pub(super) wait_seconds: u64,
}

/// Arguments of the tool `answer_gate`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerArguments {
    pub(super) session_id: SessionId,
    pub(super) gate: CallId,
    pub(super) arguments_sha256: String,
    pub(super) decision: AnswerDecision,
    pub(super) content: Option<String>,
    pub(super) note: Option<String>,
    #[serde(default = "yes")]
    pub(super) wait: bool,
}

/// Arguments of the tool `send_message`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SendArguments {
    pub(super) session_id: SessionId,
    pub(super) text: String,
    #[serde(default = "queue")]
    pub(super) mode: MessageMode,
}

fn queue() -> MessageMode {
    MessageMode::Queue
}

fn yes() -> bool {
    true
}

impl AnswerArguments {
    /// Makes the command of the answer.
    pub(super) fn to_answer(&self) -> Answer {
        let Self { gate, arguments_sha256, decision, content, note, session_id: _, wait: _ } = self.clone();
        Answer { gate, arguments_sha256, decision, arguments: None, content, note }
    }
}
