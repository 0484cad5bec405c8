//! `ailoop dead`.

use clap::{Args, Subcommand};

use super::target::FleetTarget;

/// Subcommands of `ailoop dead`.
#[derive(Debug, Clone, Subcommand)]
pub enum DeadCommand {
    /// List dead letters, the oldest first
    List(DeadListArgs),
    /// Print a dead letter with its contents, as JSON
    Show(DeadArgs),
    /// Send a client's command again, under a new id, and delete the dead letter
    Retry(DeadArgs),
    /// Delete a dead letter without a retry
    Drop(DeadArgs),
}

/// Arguments of `ailoop dead list`.
#[derive(Debug, Clone, Args)]
pub struct DeadListArgs {
    /// List only those of this session
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Arguments of `ailoop dead show`, `retry` and `drop`.
#[derive(Debug, Clone, Args)]
pub struct DeadArgs {
    /// The name of the dead letter, as in the list
    #[arg(value_name = "SESSION/KIND/ID")]
    pub letter: String,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}
