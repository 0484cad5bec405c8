//! Mail between agents: each mail is one message of its mailbox, and what closes it takes its place.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::ids::{AgentId, MailId};

/// What stands in a mailbox under a mail's id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MailEntry {
    /// A mail that waits to be processed.
    Open(Mail),
    /// One that was processed, for as long as a call that concerns it may be made again.
    Closed(ClosedMail),
}

impl MailEntry {
    /// The call that sent the mail.
    pub fn sent_by(&self) -> &str {
        match self {
            Self::Open(mail) => &mail.call,
            Self::Closed(closed) => &closed.sent_by,
        }
    }
}

/// A mail that waits to be processed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mail {
    /// Version of this shape.
    pub v: u32,
    /// The call that sent it, by its id in the fleet: how a repeated call recognises its own.
    pub call: String,
    /// Who sent it.
    pub from: AgentId,
    /// What it is about.
    pub subject: String,
    /// What it says.
    pub text: String,
    /// When it was sent, by the clock of whoever stored it.
    pub sent: Timestamp,
    /// The mail that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answered>,
}

/// A mail that was answered: whoever reads the answer may not know what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// Its id, in the mailbox of whoever answers.
    pub id: MailId,
    /// What it was about.
    pub subject: String,
    /// How it began.
    pub excerpt: String,
}

/// The mark of a mail that was processed. It holds no contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClosedMail {
    /// Version of this shape.
    pub v: u32,
    /// The call that sent the mail.
    pub sent_by: String,
    /// The call that closed it.
    pub closed_by: String,
    /// Who had sent it.
    pub from: AgentId,
    /// When it was closed.
    pub at: Timestamp,
}
