//! `ailoop tools`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::output::OutputArgs;
use super::target::{FleetTarget, NatsTarget};
use super::values::parse_duration;

const TOOLS_EXAMPLES: &str = "\
Examples:
  ailoop tools
  ailoop tools describe write_file
  ailoop tools try read_file --args '{\"path\": \"README.md\"}'";

/// Arguments of `ailoop tools`.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = TOOLS_EXAMPLES)]
pub struct ToolsArgs {
    /// The subcommand; without one the command lists.
    #[command(subcommand)]
    pub command: Option<ToolsCommand>,
    /// Output format of the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Subcommands of `ailoop tools`.
#[derive(Debug, Clone, Subcommand)]
pub enum ToolsCommand {
    /// Write a tool to begin with
    New(ToolsNewArgs),
    /// Show the description of a tool, and what its settings mean
    Describe(ToolsDescribeArgs),
    /// Call a tool as the fleet would, and print its result; uses NATS directly, without the loop and its approvals
    Try(ToolsTryArgs),
    /// Show tools that appear, change and disappear, and calls that begin and end; uses NATS directly
    Watch(ToolsWatchArgs),
    /// Check that a tool keeps the protocol, in any language; makes real calls, and uses NATS directly
    Verify(ToolsVerifyArgs),
}

/// Arguments of `ailoop tools new`.
#[derive(Debug, Clone, Args)]
pub struct ToolsNewArgs {
    /// Write NAME.py, a tool in Python
    #[arg(long, value_name = "NAME")]
    pub python: String,
}

/// Arguments of `ailoop tools describe`.
#[derive(Debug, Clone, Args)]
pub struct ToolsDescribeArgs {
    /// The name of the tool
    pub tool: String,
    /// Print the result as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Arguments of `ailoop tools try`.
#[derive(Debug, Clone, Args)]
pub struct ToolsTryArgs {
    /// The name of the tool
    pub tool: String,
    /// The arguments: a JSON object, @FILE to read it from a file, or - to read it from stdin
    #[arg(long, default_value = "{}", value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    pub args: String,
    /// Send the arguments even if the tool's schema refuses them
    #[arg(long)]
    pub unchecked: bool,
    /// Longest wait for the answer, such as 90, 90s or 5m [default: the timeout of the tool]
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
    /// The agent named as the caller
    #[arg(long, short, default_value = "try")]
    pub agent: String,
    /// The tenant of the tool, and the address of NATS.
    #[command(flatten)]
    pub nats: NatsTarget,
}

/// Arguments of `ailoop tools watch`.
#[derive(Debug, Clone, Args)]
pub struct ToolsWatchArgs {
    /// Show only this tool
    pub tool: Option<String>,
    /// Print one line of JSON for each event
    #[arg(long)]
    pub json: bool,
    /// The tenant of the tools, and the address of NATS.
    #[command(flatten)]
    pub nats: NatsTarget,
}

/// Arguments of `ailoop tools verify`.
#[derive(Debug, Clone, Args)]
pub struct ToolsVerifyArgs {
    /// The name of the tool
    pub tool: String,
    /// Arguments that should work, as for `ailoop tools try` [default: made from the schema]
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    pub args: Option<String>,
    /// Call a tool with effects without a confirmation
    #[arg(long, short)]
    pub yes: bool,
    /// Longest wait for an answer, such as 90, 90s or 5m [default: the timeout of the tool, at most 30 s]
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
    /// Print the result as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// The tenant of the tool, and the address of NATS.
    #[command(flatten)]
    pub nats: NatsTarget,
}
