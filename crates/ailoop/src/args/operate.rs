//! `ailoop status`, `top`, `doctor` and `describe`.

use clap::Args;

use super::output::OutputArgs;
use super::session_ref::SessionRef;
use super::target::FleetTarget;

/// Arguments of `ailoop status`.
#[derive(Debug, Clone, Args)]
pub struct StatusArgs {
    /// Output format of the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Arguments of `ailoop top`.
#[derive(Debug, Clone, Args)]
pub struct TopArgs {
    /// Seconds between two looks
    #[arg(long, default_value_t = 2, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub every: u64,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Arguments of `ailoop doctor`.
#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    /// Fail on warnings, too
    #[arg(long)]
    pub strict: bool,
    /// Output format of the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Arguments of `ailoop describe`.
#[derive(Debug, Clone, Args)]
pub struct DescribeArgs {
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
