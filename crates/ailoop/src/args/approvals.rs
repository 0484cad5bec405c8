//! `ailoop approvals`.

use clap::{Args, Subcommand};

use super::output::OutputArgs;
use super::target::FleetTarget;

const APPROVALS_EXAMPLES: &str = "\
Examples:
  ailoop approvals
  ailoop approvals approve 01a2143f c1-4-1
  ailoop approvals deny 01a2143f c1-4-1 --note \"not in this directory\"";

/// Arguments of `ailoop approvals`.
#[derive(Debug, Clone, Args)]
#[command(after_help = APPROVALS_EXAMPLES)]
pub struct ApprovalsArgs {
    /// The subcommand; without one the command lists.
    #[command(subcommand)]
    pub command: Option<ApprovalsCommand>,
    /// List only those of this session
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Output format of the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Subcommands of `ailoop approvals`.
#[derive(Debug, Clone, Subcommand)]
pub enum ApprovalsCommand {
    /// Print a gate with all of its arguments
    Show(GateArgs),
    /// Let the call run, or let the turn continue
    Approve(ApproveArgs),
    /// Refuse it; the model reads the note
    Deny(DenyArgs),
    /// Answer a question of `ask_user`
    Answer(ReplyArgs),
}

/// Arguments that name a gate.
#[derive(Debug, Clone, Args)]
pub struct GateArgs {
    /// The id of the session
    pub session: String,
    /// The id of the gate, as in the list
    pub gate: String,
    /// Act only if the hash of the arguments begins with this
    #[arg(long, value_name = "SHA256")]
    pub hash: Option<String>,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Arguments of `ailoop approvals approve`.
#[derive(Debug, Clone, Args)]
pub struct ApproveArgs {
    /// The gate that is meant.
    #[command(flatten)]
    pub gate: GateArgs,
    /// Run the call with these arguments instead: a JSON object, or @FILE
    #[arg(long, value_name = "JSON")]
    pub arguments: Option<String>,
    /// A note for the session's log
    #[arg(long, default_value = "")]
    pub note: String,
}

/// Arguments of `ailoop approvals deny`.
#[derive(Debug, Clone, Args)]
pub struct DenyArgs {
    /// The gate that is meant.
    #[command(flatten)]
    pub gate: GateArgs,
    /// The reason, which the model reads
    #[arg(long, default_value = "")]
    pub note: String,
}

/// Arguments of `ailoop approvals answer`.
#[derive(Debug, Clone, Args)]
pub struct ReplyArgs {
    /// The gate that is meant.
    #[command(flatten)]
    pub gate: GateArgs,
    /// The answer; - reads it from stdin
    #[arg(long, short, value_name = "TEXT")]
    pub text: String,
}
