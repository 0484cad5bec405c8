//! Commands about one session, and `ailoop sessions`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::run::SessionSettings;
use super::target::FleetTarget;
use super::values::parse_duration;

/// `ailoop sessions`
#[derive(Debug, Clone, Args)]
pub struct SessionsArgs {
    /// Only those that are idle, running, paused or ended
    #[arg(long)]
    pub phase: Option<PhaseArg>,
    /// At most this many
    #[arg(long, default_value_t = 100)]
    pub limit: u32,
    /// Print one line of JSON for each
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// A session's phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PhaseArg {
    /// Waiting for the user.
    Idle,
    /// In a turn.
    Running,
    /// No new call starts.
    Paused,
    /// Over.
    Ended,
}

impl PhaseArg {
    /// As in the client API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Ended => "ended",
        }
    }
}

/// `ailoop watch`
#[derive(Debug, Clone, Args)]
pub struct WatchArgs {
    /// The session
    pub session: String,
    /// Begin with this event's seq
    #[arg(long, default_value_t = 1, value_name = "SEQ")]
    pub from: u64,
    /// Print every event as a line of JSON
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// `ailoop transcript`
#[derive(Debug, Clone, Args)]
pub struct TranscriptArgs {
    /// The session
    pub session: String,
    /// Print results of tools, too
    #[arg(long)]
    pub results: bool,
    /// Print one line of JSON for each turn
    #[arg(long)]
    pub json: bool,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// `ailoop send`
#[derive(Debug, Clone, Args)]
pub struct SendArgs {
    /// The session
    pub session: String,
    /// What is said; - reads it from stdin
    pub text: String,
    /// How it meets a running turn
    #[arg(long, value_enum, default_value_t = ModeArg::Steer)]
    pub mode: ModeArg,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// How a message meets a running turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// The model reads it at the start of its next step
    Steer,
    /// It begins the next turn
    Queue,
    /// It cancels the model call in flight
    Interrupt,
}

impl ModeArg {
    /// As in the client API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Steer => "steer",
            Self::Queue => "queue",
            Self::Interrupt => "interrupt",
        }
    }
}

/// `ailoop pause`, `resume` and `stop`
#[derive(Debug, Clone, Args)]
pub struct ControlArgs {
    /// The session
    pub session: String,
    /// Why, for whoever watches the session; it stays in its log
    #[arg(long, default_value = "")]
    pub reason: String,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// `ailoop fork`
#[derive(Debug, Clone, Args)]
pub struct ForkArgs {
    /// The session whose transcript is taken over
    pub session: String,
    /// The last slot of its log that counts [default: its end]
    #[arg(long, value_name = "SLOT")]
    pub at: Option<u64>,
    /// The new session's agent, by key or first name [default: that of the older session]
    #[arg(long, short)]
    pub agent: Option<String>,
    /// Its model, as in models.yaml, or provider/model
    #[arg(long, short)]
    pub model: Option<String>,
    /// What is asked in it; - reads it from stdin. Without, it waits for `ailoop send`
    #[arg(long, short)]
    pub prompt: Option<String>,
    /// Its name [default: one is made]
    #[arg(long = "as", value_name = "ID")]
    pub name: Option<String>,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}

/// `ailoop configure`
#[derive(Debug, Clone, Args)]
pub struct ConfigureArgs {
    /// The session
    pub session: String,
    /// The agent that goes on with the session: a key of agents.yaml, or the first word of its name
    #[arg(long, short)]
    pub agent: Option<String>,
    /// The model of the calls that open from now on
    #[arg(long, short)]
    pub model: Option<String>,
    /// Steps of a turn
    #[arg(long, value_name = "N")]
    pub max_iterations: Option<u32>,
    /// Time of a turn, such as 90, 90s or 5m
    #[arg(long, value_parser = parse_duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
    /// What it says of itself from now on.
    #[command(flatten)]
    pub settings: SessionSettings,
    /// Where the fleet is.
    #[command(flatten)]
    pub target: FleetTarget,
}
