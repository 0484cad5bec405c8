//! `ailoop tools`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::target::{FleetTarget, NatsTarget};
use super::values::parse_duration;

/// `ailoop tools`
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ToolsArgs {
    /// What to do with one of them.
    #[command(subcommand)]
    pub command: Option<ToolsCommand>,
    /// Print one line of JSON for each
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// `ailoop tools <command>`
#[derive(Debug, Clone, Subcommand)]
pub enum ToolsCommand {
    /// Show all that a tool says of itself, and what follows from it
    Describe(ToolsDescribeArgs),
    /// Call a tool as the fleet would, and print its result; asks NATS itself, past the loop and its approvals
    Try(ToolsTryArgs),
    /// Show tools as they come, change and go, and calls as they begin and end; asks NATS itself
    Watch(ToolsWatchArgs),
    /// Check that a tool keeps the protocol, in whatever language: calls it, and asks NATS itself
    Verify(ToolsVerifyArgs),
}

/// `ailoop tools describe`
#[derive(Debug, Clone, Args)]
pub struct ToolsDescribeArgs {
    /// The tool
    pub tool: String,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// `ailoop tools try`
#[derive(Debug, Clone, Args)]
pub struct ToolsTryArgs {
    /// The tool
    pub tool: String,
    /// Its arguments: a JSON object, @file to read one from a file, - from stdin
    #[arg(long, default_value = "{}", value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    pub args: String,
    /// Send arguments that do not fit the tool's schema, too
    #[arg(long)]
    pub unchecked: bool,
    /// How long its answer is waited for, such as 90, 90s or 5m [default: as the tool says]
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
    /// The agent that seems to call
    #[arg(long, short, default_value = "try")]
    pub agent: String,
    /// Whose tool, and where NATS is.
    #[command(flatten)]
    pub nats: NatsTarget,
}

/// `ailoop tools watch`
#[derive(Debug, Clone, Args)]
pub struct ToolsWatchArgs {
    /// Only this tool
    pub tool: Option<String>,
    /// Print lines of JSON
    #[arg(long)]
    pub json: bool,
    /// Whose tools, and where NATS is.
    #[command(flatten)]
    pub nats: NatsTarget,
}

/// `ailoop tools verify`
#[derive(Debug, Clone, Args)]
pub struct ToolsVerifyArgs {
    /// The tool
    pub tool: String,
    /// Arguments that ought to work, as `ailoop tools try` takes them; else some are made from the schema
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    pub args: Option<String>,
    /// Call a tool that takes effect without asking first
    #[arg(long, short)]
    pub yes: bool,
    /// How long an answer is waited for, such as 90, 90s or 5m [default: as the tool says, 30 s at most]
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Whose tool, and where NATS is.
    #[command(flatten)]
    pub nats: NatsTarget,
}
