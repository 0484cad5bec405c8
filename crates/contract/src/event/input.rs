//! Outcome of the inputs of a session: handled or ignored.

use serde::{Deserialize, Serialize};

use crate::client_tool::ClientTool;
use crate::command::{MessageMode, Parent, Refusal, Verb};
use crate::ids::{CallId, CommandId};
use crate::model::Content;
use crate::spent::Spent;
use crate::timestamp::Timestamp;
use crate::tool::Outcome;

/// An input that was handled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputHandled {
    /// Kind and id of the input.
    #[serde(flatten)]
    pub input: InputRef,
    /// For client commands: their sequence in the control stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_seq: Option<u64>,
    /// For client commands: when the control stream took them, by the server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_at: Option<Timestamp>,
    /// For commands of a parent: their index among its commands to all children.
    #[serde(default, rename = "told", skip_serializing_if = "Option::is_none")]
    pub parent_command_number: Option<u64>,
}

/// An input that changed nothing, with the reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputIgnored {
    /// Kind and id of the input.
    #[serde(flatten)]
    pub input: InputRef,
    /// For client commands: their sequence in the control stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_seq: Option<u64>,
    /// For client commands: when the control stream took them, by the server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_at: Option<Timestamp>,
    /// For commands of a parent: their index among its commands to all children.
    #[serde(default, rename = "told", skip_serializing_if = "Option::is_none")]
    pub parent_command_number: Option<u64>,
    /// Reason that the sender gets.
    pub refusal: Refusal,
    /// Tokens and money that a late reply used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Spent>,
    /// The call that a late result is of. None where an older version wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// Outcome that a late result reports, where it was not known before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<Outcome>,
    /// Parent of a refused `start` by another session: its call gets the refusal as its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Box<Parent>>,
}

/// An input by its identity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InputRef {
    /// Source and kind of the input.
    pub kind: InputKind,
    /// Unique within its kind.
    pub id: CommandId,
}

/// A control verb, or the timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// The session's timer; its id is the number of the setting.
    Timer,
    /// A command, or a result of a worker.
    #[serde(untagged)]
    Control(Verb),
}

/// A user message that the session accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UserProcessed {
    /// The id of the command that brought it.
    pub message_id: CommandId,
    /// The message, as text or as parts.
    pub content: Content,
    /// Handling of the message while a turn runs.
    pub mode: MessageMode,
    /// Tools of clients from the step that reads it; none: as they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_tools: Option<Vec<ClientTool>>,
}
