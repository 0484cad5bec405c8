//! `ailoop sessions rm`.

use clap::{Args, Subcommand};

/// Subcommands of `ailoop sessions`.
#[derive(Debug, Clone, Subcommand)]
pub enum SessionsCommand {
    /// Erase everything that sessions left, after they have ended; nothing brings it back; uses NATS directly
    Rm(SessionsRmArgs),
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
    /// The address of NATS, such as <nats://127.0.0.1:4222> [default: from .ailoop/run.json, else from the
    /// configuration]
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
}
