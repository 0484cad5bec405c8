//! `ailoop run`, and the settings that a session can have of its own.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::fleet::Files;
use super::target::FleetTarget;
use super::values::{parse_duration, parse_pair};

const RUN_EXAMPLES: &str = "\
Examples:
  ailoop run \"Survey this directory and write a report\"
  ailoop run --agent e --model ollama/qwen3:8b \"Fix the failing test\"
  ailoop run -c \"And now add a test\"
  git diff | ailoop run --final \"Review this change\"";

/// Arguments of `ailoop run`.
#[derive(Debug, Clone, Args)]
#[command(after_help = RUN_EXAMPLES)]
#[allow(clippy::struct_excessive_bools, reason = "switches that people set one by one")]
pub struct RunArgs {
    /// The prompt; - reads it from stdin. A file or pipe on stdin is appended to another prompt
    pub prompt: String,
    /// The agent, by key or first name
    #[arg(long, short)]
    pub agent: Option<String>,
    /// The model, as in models.yaml, or provider/model
    #[arg(long, short)]
    pub model: Option<String>,
    /// Continue this session; if it does not exist, begin it so that it can be continued
    #[arg(long, short, value_name = "ID")]
    pub session: Option<String>,
    /// Continue the newest session; if it has ended, go on in a copy of it
    #[arg(long, short = 'c', conflicts_with = "session")]
    pub last: bool,
    /// The directories of the file tools.
    #[command(flatten)]
    pub files: Files,
    /// Longest time for the answer, including approvals, such as 90, 90s or 5m
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
    /// Choose who answers approval requests [default: you at the terminal; the command fails without a terminal]
    #[arg(long, value_enum, value_name = "WHO")]
    pub approve: Option<ApproveArg>,
    /// Most steps for the answer
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub max_iterations: Option<u32>,
    /// The settings of a new session.
    #[command(flatten)]
    pub settings: SessionSettings,
    /// Print only the final answer: no steps, no tool calls and no state
    #[arg(long = "final", short = 'q', alias = "quiet")]
    pub final_only: bool,
    /// Print every event as a line of JSON
    #[arg(long, conflicts_with = "final_only")]
    pub json: bool,
    /// Keep a fleet that the command started, and its console, until Ctrl-C
    #[arg(long)]
    pub stay: bool,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// Settings of one session, over those of its agent and model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct SessionSettings {
    /// A parameter of requests to the model, such as temperature=0.2; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub param: Vec<(String, String)>,
    /// A value for {{{NAME}}} in prompts; may be repeated
    #[arg(long, value_name = "NAME=TEXT", value_parser = parse_pair)]
    pub prompt_param: Vec<(String, String)>,
    /// A system prompt that replaces that of the agent
    #[arg(long, value_name = "TEXT")]
    pub system_prompt: Option<String>,
    /// The tools that the model may call: auto, none, required or a tool's name; may be repeated, once for each step of
    /// a turn
    #[arg(long, value_name = "CHOICE")]
    pub tool_choice: Vec<String>,
    /// A setting of reply streaming, such as enabled=false or idle=90; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub streaming: Vec<(String, String)>,
    /// Switch a prompt feature on; may be repeated
    #[arg(long, value_name = "FEATURE")]
    pub feature: Vec<String>,
    /// Switch a prompt feature off; may be repeated
    #[arg(long, value_name = "FEATURE")]
    pub without: Vec<String>,
    /// Whether the loop continues by itself: on, off, or the name of a template
    #[arg(long, value_name = "on|off|TEMPLATE")]
    pub continuation: Option<String>,
    /// Further continuation settings as a JSON object, such as {"limits": {"tokens": 50000}}
    #[arg(long, value_name = "JSON")]
    pub set: Option<String>,
}

/// Policy for answering the gates of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ApproveArg {
    /// Every tool call may run; questions and requests for more at a limit are declined
    All,
    /// Every request is declined
    None,
    /// Another client answers, by `ailoop approvals` or by the API
    Wait,
}
