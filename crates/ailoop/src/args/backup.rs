//! `ailoop backup` and `ailoop restore`.

use std::path::PathBuf;

use clap::Args;

use super::target::NatsArgs;

/// Arguments of `ailoop backup`.
#[derive(Debug, Clone, Args)]
pub struct BackupArgs {
    /// The directory to make; it appears only when the backup is complete
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Back up only this stream, by its name on nats-server, such as `AI_LOOP_LOG`; can be repeated
    #[arg(long, value_name = "STREAM")]
    pub only: Vec<String>,
    /// Address of NATS, or the cell.
    #[command(flatten)]
    pub nats: NatsArgs,
}

/// Arguments of `ailoop restore`.
#[derive(Debug, Clone, Args)]
pub struct RestoreArgs {
    /// The directory that `ailoop backup` made
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Delete the streams that exist with messages, after you have typed `delete`
    #[arg(long)]
    pub force: bool,
    /// With --force: do not ask
    #[arg(long, requires = "force")]
    pub yes: bool,
    /// The replicas of each stream: 1 on one server, 3 in a cluster [default: nats.replicas of the configuration]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=5))]
    pub replicas: Option<u64>,
    /// Address of NATS, or the cell.
    #[command(flatten)]
    pub nats: NatsArgs,
}
