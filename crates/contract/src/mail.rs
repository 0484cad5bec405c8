//! Mail between agents, and with people. Each mail is one message in its mailbox, and its closing mark replaces it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, CommandId, MailId};
use crate::{ErrorCode, Timestamp};

/// The mailbox of the people of a tenant. No agent has this id.
pub const PEOPLE: &str = "user";

/// Value in a mailbox under the id of a mail.
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
    /// Fleet-wide id of the call that sent it, by which a repeated call recognises its own mail.
    pub call: String,
    /// The sender's mailbox: an agent's key, [`PEOPLE`], or the name that a client goes by. An answer goes there.
    pub from: AgentId,
    /// One line, at most [`MAIL_SUBJECT_BYTES_MAX`](crate::limits::MAIL_SUBJECT_BYTES_MAX) bytes as JSON.
    pub subject: String,
    /// At most [`MAIL_TEXT_BYTES_MAX`](crate::limits::MAIL_TEXT_BYTES_MAX) bytes as JSON.
    pub text: String,
    /// Time of sending, by the clock of the executor that stored it.
    pub sent: Timestamp,
    /// The mail that it answers; none where it is the first of its exchange.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answered>,
}

/// A mail that was answered: the reader of the answer may not know what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AnsweredMail")]
pub struct Answered {
    /// The mail's id, in the mailbox from which the answer comes.
    pub id: MailId,
    /// The subject of the mail that is answered.
    pub subject: String,
    /// The first 300 characters of its text.
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
    /// The sender's mailbox, where an answer is.
    pub from: AgentId,
    /// Time of closing, by the clock of the executor. The server removes the mark an hour later.
    pub at: Timestamp,
}

/// Request of a client to the mailboxes: the body of a request to `ai_rpc.mail.<tenant>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailRequest {
    /// The mailbox that is read or written from. That of an agent, by key or alias, may only be read.
    pub mailbox: AgentId,
    /// The request's own id: a request that comes twice takes effect once.
    pub id: CommandId,
    /// Action on the mailbox, with its arguments.
    pub action: MailAction,
}

/// Action of a client on a mailbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MailAction {
    /// The mails that wait in it.
    List,
    /// Sends a mail to an agent or a person.
    Send {
        /// An agent's key, alias or name, or [`PEOPLE`].
        to: String,
        /// As in [`Mail::subject`]; not empty.
        subject: String,
        /// As in [`Mail::text`]; not empty.
        text: String,
    },
    /// Answers a mail of the mailbox, and closes it.
    Reply {
        /// The mail's id, as the list shows it.
        mail: String,
        /// The answer, as in [`Mail::text`]; empty where the mail is only closed.
        text: String,
    },
}

/// The executor's answer to a [`MailRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MailResponse {
    /// Answer to [`MailAction::List`]: the mails that wait.
    Mails(MailList),
    /// Answers [`MailAction::Send`]: the mail is stored.
    Sent(SentMail),
    /// Answers [`MailAction::Reply`]: the mail is closed.
    Closed(RepliedMail),
    /// The request did not succeed. The message says so where it may have taken effect all the same.
    Refused {
        /// The stable code that the client gets.
        code: ErrorCode,
        /// Explanation for people: what failed, with its value, and what to do.
        message: String,
    },
}

/// Mails that wait in a mailbox, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MailList {
    /// Number of newer mails that wait and are not in this list.
    pub more: usize,
    /// At most [`MAILS_SHOWN_MAX`](crate::limits::MAILS_SHOWN_MAX), fewer where they are long.
    pub mails: Vec<WaitingMail>,
}

/// A mail as readers of the mailbox see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Mail")]
pub struct WaitingMail {
    /// Id under which it is answered or closed.
    pub id: MailId,
    /// The sender's mailbox, where an answer goes.
    pub from: AgentId,
    /// Subject in one line.
    pub subject: String,
    /// Text of the mail, never shortened.
    pub text: String,
    /// Time of sending, by the clock of the executor that stored it.
    pub sent: Timestamp,
    /// The mail that it answers; none where it is the first of its exchange.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answered>,
}

/// A mail that was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SentMail {
    /// The mail's id in the mailbox of its recipient.
    pub sent: MailId,
    /// The mailbox that it is in: the recipient's key, whatever name the request used.
    pub to: AgentId,
}

/// A mail that was closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ClosedMail")]
pub struct RepliedMail {
    /// The mail's id, which the list shows no more.
    pub closed: MailId,
    /// Whether an answer was sent.
    pub answered: bool,
}
