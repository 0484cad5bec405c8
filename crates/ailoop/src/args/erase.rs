//! The subcommands of `ailoop sessions`, and `ailoop sessions rm`.

use clap::{Args, Subcommand};

use super::drop_history::DropHistoryArgs;
use super::target::NatsArgs;

/// Subcommands of `ailoop sessions`.
#[derive(Debug, Clone, Subcommand)]
pub enum SessionsCommand {
    /// Erase everything that sessions left, after they have ended; nothing brings it back; uses NATS directly
    Rm(SessionsRmArgs),
    /// Remove the end of a log that has commits of two histories; nothing brings it back; uses NATS directly
    DropHistory(DropHistoryArgs),
}

/// Arguments of `ailoop sessions rm`.
#[derive(Debug, Clone, Args)]
pub struct SessionsRmArgs {
    /// The ids of the sessions
    #[arg(value_name = "SESSION", required = true)]
    pub sessions: Vec<String>,
    /// Do not ask before they are erased
    #[arg(long)]
    pub yes: bool,
    /// The tenant of the sessions
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// Address of NATS, or the cell.
    #[command(flatten)]
    pub nats: NatsArgs,
}
