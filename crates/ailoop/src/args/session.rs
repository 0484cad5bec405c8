//! Commands about one session, and `ailoop sessions`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::erase::SessionsCommand;
use super::filter::SessionFilter;
use super::output::OutputArgs;
use super::run::SessionSettings;
use super::session_ref::SessionRef;
use super::target::FleetTarget;
use super::values::parse_duration;

const SESSIONS_EXAMPLES: &str = "\
Examples:
  ailoop sessions --phase running
  ailoop sessions --since 2h --error
  ailoop sessions -o json | jq -r .session_id";

/// Arguments of `ailoop sessions`.
#[derive(Debug, Clone, Args)]
#[command(after_help = SESSIONS_EXAMPLES)]
pub struct SessionsArgs {
    /// The subcommand; without one the command lists.
    #[command(subcommand)]
    pub command: Option<SessionsCommand>,
    /// The sessions to list.
    #[command(flatten)]
    pub filter: SessionFilter,
    /// The most sessions to list
    #[arg(long, default_value_t = 100)]
    pub limit: u32,
    /// Output format of the result.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

const WATCH_EXAMPLES: &str = "\
Examples:
  ailoop watch --last
  ailoop watch 01a2143f --no-follow";

/// Arguments of `ailoop watch`.
#[derive(Debug, Clone, Args)]
#[command(after_help = WATCH_EXAMPLES)]
pub struct WatchArgs {
    /// The session to work on.
    #[command(flatten)]
    pub session: SessionRef,
    /// The seq of the first event to show
    #[arg(long, default_value_t = 1, value_name = "SEQ")]
    pub from: u64,
    /// Show what there is now, and do not wait for more
    #[arg(long)]
    pub no_follow: bool,
    /// Print every event as a line of JSON
    #[arg(long)]
    pub json: bool,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Arguments of `ailoop transcript`.
#[derive(Debug, Clone, Args)]
pub struct TranscriptArgs {
    /// The session to work on.
    #[command(flatten)]
    pub session: SessionRef,
    /// Also print the results of tools
    #[arg(long)]
    pub results: bool,
    /// Print one line of JSON for each turn
    #[arg(long)]
    pub json: bool,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

const SEND_EXAMPLES: &str = "\
Examples:
  ailoop send --last \"Look at the tests, too\"
  ailoop send 01a2143f --mode queue - < task.md";

/// Arguments of `ailoop send`.
#[derive(Debug, Clone, Args)]
#[command(allow_missing_positional = true)]
#[command(after_help = SEND_EXAMPLES)]
pub struct SendArgs {
    /// The session to work on.
    #[command(flatten)]
    pub session: SessionRef,
    /// The text of the message; - reads it from stdin
    pub text: String,
    /// The effect of the message on a running turn
    #[arg(long, value_enum, default_value_t = ModeArg::Steer)]
    pub mode: ModeArg,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Effect of a message on a running turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// The model reads it at the start of its next step
    Steer,
    /// It begins the next turn
    Queue,
    /// It cancels the model call in flight
    Interrupt,
}

/// Arguments of `ailoop pause`, `resume` and `stop`.
#[derive(Debug, Clone, Args)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["session", "last", "all"]))]
pub struct ControlArgs {
    /// The session: its id, its short id, or the beginning of one
    pub session: Option<String>,
    /// The newest session that no other one began
    #[arg(long, short = 'c')]
    pub last: bool,
    /// Every session that has not ended and that the options below select
    #[arg(long)]
    pub all: bool,
    /// Do not ask before many sessions are changed
    #[arg(long, requires = "all")]
    pub yes: bool,
    /// The sessions of `--all`.
    #[command(flatten)]
    pub filter: SessionFilter,
    /// The reason, which is shown to viewers and kept in the log
    #[arg(long, default_value = "")]
    pub reason: String,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Arguments of `ailoop fork`.
#[derive(Debug, Clone, Args)]
pub struct ForkArgs {
    /// The session to work on.
    #[command(flatten)]
    pub session: SessionRef,
    /// The last slot of its log to copy [default: its end]
    #[arg(long, value_name = "SLOT")]
    pub at: Option<u64>,
    /// The new session's agent, by key or first name [default: that of the older session]
    #[arg(long, short)]
    pub agent: Option<String>,
    /// The new session's model, as in models.yaml, or provider/model
    #[arg(long, short)]
    pub model: Option<String>,
    /// The first prompt; - reads it from stdin. Without a prompt the session waits for `ailoop send`
    #[arg(long, short)]
    pub prompt: Option<String>,
    /// The id of the new session [default: a generated one]
    #[arg(long = "as", value_name = "ID")]
    pub name: Option<String>,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Arguments of `ailoop configure`.
#[derive(Debug, Clone, Args)]
pub struct ConfigureArgs {
    /// The session to work on.
    #[command(flatten)]
    pub session: SessionRef,
    /// The agent that continues the session: a key of agents.yaml, or the first word of its name
    #[arg(long, short)]
    pub agent: Option<String>,
    /// The model of later calls
    #[arg(long, short)]
    pub model: Option<String>,
    /// Most steps of a turn
    #[arg(long, value_name = "N")]
    pub max_iterations: Option<u32>,
    /// Time of a turn, such as 90, 90s or 5m
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
    /// The settings to change.
    #[command(flatten)]
    pub settings: SessionSettings,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}
