//! `ailoop up`, `queues` and `repair`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;

use super::output::OutputArgs;
use super::target::FleetTarget;

/// The directories that the tools of a fleet in this process may use.
#[derive(Debug, Clone, Args)]
pub struct Files {
    /// The directory that the file tools read [default: .]
    #[arg(long)]
    pub root: Option<PathBuf>,
    /// The directory that the file tools write [default: .ailoop/out]
    #[arg(long)]
    pub out: Option<PathBuf>,
}

const UP_EXAMPLES: &str = "\
Examples:
  ailoop up
  ailoop up --root ~/project --out ~/project/out --model ollama/qwen3:8b";

/// Arguments of `ailoop up`.
#[derive(Debug, Clone, Args)]
#[command(after_help = UP_EXAMPLES)]
pub struct UpArgs {
    /// The directories of the file tools.
    #[command(flatten)]
    pub files: Files,
    /// The model of agents that name none [default: see `ailoop help start`]
    #[arg(long)]
    pub model: Option<String>,
    /// The address of a running nats-server, to use instead of a private one
    #[arg(long, value_name = "URL", env = "AILOOP_NATS_URL")]
    pub nats: Option<String>,
    /// The address that the edge listens on [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub host: Option<IpAddr>,
    /// Port for WebSocket and HTTP; 0 picks a free one [default: 7070]
    #[arg(long, value_name = "PORT")]
    pub ws_port: Option<u16>,
    /// Port for gRPC; 0 picks a free one [default: 7071]
    #[arg(long, value_name = "PORT")]
    pub grpc_port: Option<u16>,
    /// Port of the private nats-server; -1 picks a free one
    #[arg(long, default_value_t = -1, value_name = "PORT", allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-1..=65535))]
    pub nats_port: i32,
    /// Make a new token and password of NATS, refuse clients with the old ones, and use a .ailoop that was moved or copied
    #[arg(long)]
    pub new_token: bool,
    /// Let every user and every program of this machine use the fleet, without token and password
    #[arg(long, conflicts_with = "new_token")]
    pub no_credentials: bool,
}

/// Arguments of `ailoop queues`.
#[derive(Debug, Clone, Args)]
pub struct QueuesArgs {
    /// Output format of the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Arguments of `ailoop repair`.
#[derive(Debug, Clone, Args)]
pub struct RepairArgs {
    /// The sessions, each as its id or short id [default: all that have not ended]
    #[arg(value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Print JSON, a line for each session
    #[arg(long)]
    pub json: bool,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}
