//! `ailoop acp`.

use clap::Args;

use super::target::FleetTarget;

/// Arguments of `ailoop acp`.
#[derive(Debug, Clone, Args)]
pub struct AcpArgs {
    /// The agent of new sessions, by key or first name; the editor may choose another one [default: that of the fleet]
    #[arg(long, short)]
    pub agent: Option<String>,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}
