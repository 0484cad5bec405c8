//! `ailoop mail`.

use clap::{Args, Subcommand};
use contract::mail::PEOPLE;

use super::target::FleetTarget;

/// `ailoop mail`
#[derive(Debug, Clone, Args)]
pub struct MailArgs {
    /// What to do; lists where nothing is said.
    #[command(subcommand)]
    pub command: Option<MailCommand>,
    /// Whose mails: an agent's key, or a name of your own
    #[arg(long, value_name = "NAME", default_value = PEOPLE)]
    pub mailbox: String,
    /// Print one line of JSON for each
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// What to do with mails.
#[derive(Debug, Clone, Subcommand)]
pub enum MailCommand {
    /// Send a mail to an agent, which reads it when a session of it looks
    Send(MailSendArgs),
    /// Answer a mail and close it
    Reply(MailReplyArgs),
    /// Close a mail without an answer
    Close(MailCloseArgs),
}

/// `ailoop mail send`
#[derive(Debug, Clone, Args)]
pub struct MailSendArgs {
    /// An agent's key or first name
    pub to: String,
    /// What it says; - reads it from stdin
    pub text: String,
    /// What it is about
    #[arg(long, short)]
    pub subject: String,
    /// From which mailbox: answers come there
    #[arg(long, value_name = "NAME", default_value = PEOPLE)]
    pub mailbox: String,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// `ailoop mail reply`
#[derive(Debug, Clone, Args)]
pub struct MailReplyArgs {
    /// The mail, as the list shows it
    pub id: String,
    /// The answer; - reads it from stdin
    pub text: String,
    /// In which mailbox the mail is
    #[arg(long, value_name = "NAME", default_value = PEOPLE)]
    pub mailbox: String,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// `ailoop mail close`
#[derive(Debug, Clone, Args)]
pub struct MailCloseArgs {
    /// The mail, as the list shows it
    pub id: String,
    /// In which mailbox the mail is
    #[arg(long, value_name = "NAME", default_value = PEOPLE)]
    pub mailbox: String,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}
