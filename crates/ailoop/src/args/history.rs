//! Commands that read or write the logs of sessions.

use std::path::PathBuf;

use clap::Args;

use super::output::OutputArgs;
use super::session_ref::SessionRef;
use super::target::{FleetTarget, NatsArgs};

/// Arguments of `ailoop replay`.
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// The session to work on.
    #[command(flatten)]
    pub session: SessionRef,
    /// Print the state after this slot
    #[arg(long, value_name = "SLOT")]
    pub at: Option<u64>,
    /// Output format of the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// The variable with the address of traces.
pub const TRACE_URL: &str = "AILOOP_TRACE_URL";

/// Arguments of `ailoop trace`.
#[derive(Debug, Clone, Args)]
pub struct TraceArgs {
    /// The session to work on.
    #[command(flatten)]
    pub session: SessionRef,
    /// Show this turn only
    #[arg(long, value_name = "NUMBER")]
    pub turn: Option<u32>,
    /// The address of a trace in your trace backend, with `{trace_id}`, such as
    /// <http://127.0.0.1:16686/trace/{trace_id}>
    #[arg(long, env = TRACE_URL, value_name = "URL")]
    pub trace_url: Option<String>,
    /// Print everything as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Arguments of `ailoop export`.
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// The id of the session
    pub session: String,
    /// Write to this file, which appears only when it is complete [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The tenant of the session
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// Address of NATS, or the cell.
    #[command(flatten)]
    pub nats: NatsArgs,
}

/// Arguments of `ailoop import`.
#[derive(Debug, Clone, Args)]
pub struct ImportArgs {
    /// The file to read
    pub file: PathBuf,
    /// Address of NATS, or the cell.
    #[command(flatten)]
    pub nats: NatsArgs,
}

/// Arguments of `ailoop decisions`.
#[derive(Debug, Clone, Args)]
pub struct DecisionsArgs {
    /// The session to work on.
    #[command(flatten)]
    pub session: SessionRef,
    /// Output format of the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Arguments of `ailoop stats`.
#[derive(Debug, Clone, Args)]
pub struct StatsArgs {
    /// Count only sessions that began at or after this time, such as 2026-01-15T10:30:45Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Output format of the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}
