//! `ailoop sessions drop-history`.

use clap::Args;

use super::target::NatsArgs;

/// Arguments of `ailoop sessions drop-history`.
#[derive(Debug, Clone, Args)]
pub struct DropHistoryArgs {
    /// The id of the session
    pub session: String,
    /// Remove the commits from this slot on [default: the first one that does not follow the slot before it]
    #[arg(long, value_name = "SLOT")]
    pub from: Option<u64>,
    /// Do not ask before they are removed
    #[arg(long)]
    pub yes: bool,
    /// The tenant of the session
    #[arg(long, default_value = "default")]
    pub tenant: String,
    /// Address of NATS, or the cell.
    #[command(flatten)]
    pub nats: NatsArgs,
}
