//! `ailoop approvals`.

use clap::{Args, Subcommand};

use super::target::FleetTarget;

/// `ailoop approvals`
#[derive(Debug, Clone, Args)]
pub struct ApprovalsArgs {
    /// What to do; lists where nothing is said.
    #[command(subcommand)]
    pub command: Option<ApprovalsCommand>,
    /// Only those of this session
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Print one line of JSON for each
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// What to do with what waits.
#[derive(Debug, Clone, Subcommand)]
pub enum ApprovalsCommand {
    /// Print everything about one, with all of its arguments
    Show(GateArgs),
    /// Let the call run, or the turn go on
    Approve(ApproveArgs),
    /// Refuse it; the model reads the note
    Deny(DenyArgs),
    /// Answer a question of `ask_user`
    Answer(ReplyArgs),
}

/// Which one.
#[derive(Debug, Clone, Args)]
pub struct GateArgs {
    /// The session
    pub session: String,
    /// What waits, as the list shows it: what is answered is what was looked at
    pub gate: String,
    /// Act only on the arguments with this hash, or with one that begins so
    #[arg(long, value_name = "SHA256")]
    pub hash: Option<String>,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// `ailoop approvals approve`
#[derive(Debug, Clone, Args)]
pub struct ApproveArgs {
    /// Which one.
    #[command(flatten)]
    pub gate: GateArgs,
    /// Run the call with these arguments instead: a JSON object, or @FILE
    #[arg(long, value_name = "JSON")]
    pub arguments: Option<String>,
    /// A note for the session's log
    #[arg(long, default_value = "")]
    pub note: String,
}

/// `ailoop approvals deny`
#[derive(Debug, Clone, Args)]
pub struct DenyArgs {
    /// Which one.
    #[command(flatten)]
    pub gate: GateArgs,
    /// Why; the model reads it
    #[arg(long, default_value = "")]
    pub note: String,
}

/// `ailoop approvals answer`
#[derive(Debug, Clone, Args)]
pub struct ReplyArgs {
    /// Which one.
    #[command(flatten)]
    pub gate: GateArgs,
    /// The answer; - reads it from stdin
    #[arg(long, short, value_name = "TEXT")]
    pub text: String,
}
