//! `ailoop dead`.

use clap::{Args, Subcommand};

use super::output::OutputArgs;
use super::target::FleetTarget;

/// Subcommands of `ailoop dead`.
#[derive(Debug, Clone, Subcommand)]
pub enum DeadCommand {
    /// List dead letters, the oldest first
    List(DeadListArgs),
    /// Print a dead letter with its contents, as JSON
    Show(DeadArgs),
    /// Send a client's command again, under a new id, and delete the dead letter
    Retry(DeadSelection),
    /// Delete a dead letter without a retry
    Drop(DeadSelection),
}

/// Arguments of `ailoop dead list`.
#[derive(Debug, Clone, Args)]
pub struct DeadListArgs {
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

/// Arguments of `ailoop dead retry` and `drop`.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["letter", "all"]))]
pub struct DeadSelection {
    /// The name of the dead letter, as in the list
    #[arg(value_name = "SESSION/KIND/ID")]
    pub letter: Option<String>,
    /// Every dead letter that the options below select; one that cannot be retried stays
    #[arg(long)]
    pub all: bool,
    /// With --all: only those of this session
    #[arg(long, value_name = "ID", requires = "all")]
    pub session: Option<String>,
    /// With --all: only those with this error code
    #[arg(long, value_name = "CODE", requires = "all")]
    pub code: Option<String>,
    /// Do not ask before many of them are changed
    #[arg(long, requires = "all")]
    pub yes: bool,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Arguments of `ailoop dead show`.
#[derive(Debug, Clone, Args)]
pub struct DeadArgs {
    /// The name of the dead letter, as in the list
    #[arg(value_name = "SESSION/KIND/ID")]
    pub letter: String,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}
