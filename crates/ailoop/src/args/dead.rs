//! `ailoop dead`.

use clap::{Args, Subcommand};

use super::target::FleetTarget;

/// `ailoop dead`
#[derive(Debug, Clone, Subcommand)]
pub enum DeadCommand {
    /// List dead letters, the oldest first
    List(DeadListArgs),
    /// Print one with its contents, as JSON
    Show(DeadArgs),
    /// Send a client's command once more, under a new id, and remove the letter
    Retry(DeadArgs),
    /// Throw one away
    Drop(DeadArgs),
}

/// `ailoop dead list`
#[derive(Debug, Clone, Args)]
pub struct DeadListArgs {
    /// Only those of this session
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// `ailoop dead show`, `retry` and `drop`
#[derive(Debug, Clone, Args)]
pub struct DeadArgs {
    /// Which one, as the list shows it
    #[arg(value_name = "SESSION/KIND/ID")]
    pub letter: String,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}
