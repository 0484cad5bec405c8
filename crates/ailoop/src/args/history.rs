//! Commands that read or write the logs of sessions.

use std::path::PathBuf;

use clap::Args;

use super::target::FleetTarget;

/// `ailoop replay`
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// The session
    pub session: String,
    /// Print the state after this slot
    #[arg(long, value_name = "SLOT")]
    pub at: Option<u64>,
    /// Print everything as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// `ailoop export`
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// The session
    pub session: String,
    /// Write to this file, which is whole where it is there; else to standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Whose session it is
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// The address of NATS, such as <nats://127.0.0.1:4222>; else .ailoop/run.json tells, else the configuration
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
}

/// `ailoop import`
#[derive(Debug, Clone, Args)]
pub struct ImportArgs {
    /// The file
    pub file: PathBuf,
    /// The address of NATS, such as <nats://127.0.0.1:4222>; else .ailoop/run.json tells, else the configuration
    #[arg(long, value_name = "URL")]
    pub nats: Option<String>,
}

/// `ailoop decisions`
#[derive(Debug, Clone, Args)]
pub struct DecisionsArgs {
    /// The session
    pub session: String,
    /// Print one line of JSON for each
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// `ailoop stats`
#[derive(Debug, Clone, Args)]
pub struct StatsArgs {
    /// Only sessions that began at or after this instant, such as 2026-01-15T10:30:45Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}
