//! `ailoop mail`.

use clap::{Args, Subcommand};
use contract::mail::PEOPLE;

use super::target::FleetTarget;

/// Arguments of `ailoop mail`.
#[derive(Debug, Clone, Args)]
pub struct MailArgs {
    /// The subcommand; without one the command lists.
    #[command(subcommand)]
    pub command: Option<MailCommand>,
    /// The mailbox: an agent's key, or a name of your own
    #[arg(long, value_name = "NAME", default_value = PEOPLE)]
    pub mailbox: String,
    /// Print one line of JSON for each entry
    #[arg(long)]
    pub json: bool,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Subcommands of `ailoop mail`.
#[derive(Debug, Clone, Subcommand)]
pub enum MailCommand {
    /// Send a mail to an agent, whose sessions can read it
    Send(MailSendArgs),
    /// Answer a mail and close it
    Reply(MailReplyArgs),
    /// Close a mail without an answer
    Close(MailCloseArgs),
}

/// Arguments of `ailoop mail send`.
#[derive(Debug, Clone, Args)]
pub struct MailSendArgs {
    /// An agent's key or first name
    pub to: String,
    /// The text of the mail; - reads it from stdin
    pub text: String,
    /// The subject of the mail
    #[arg(long, short)]
    pub subject: String,
    /// The mailbox of the sender, which gets the answers
    #[arg(long, value_name = "NAME", default_value = PEOPLE)]
    pub mailbox: String,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Arguments of `ailoop mail reply`.
#[derive(Debug, Clone, Args)]
pub struct MailReplyArgs {
    /// The id of the mail, as in the list
    pub id: String,
    /// The answer; - reads it from stdin
    pub text: String,
    /// The mailbox that holds the mail
    #[arg(long, value_name = "NAME", default_value = PEOPLE)]
    pub mailbox: String,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Arguments of `ailoop mail close`.
#[derive(Debug, Clone, Args)]
pub struct MailCloseArgs {
    /// The id of the mail, as in the list
    pub id: String,
    /// The mailbox that holds the mail
    #[arg(long, value_name = "NAME", default_value = PEOPLE)]
    pub mailbox: String,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}
