//! Selection of the sessions that a command is for.

use clap::{Args, ValueEnum};

use super::values::parse_since;

/// Selection of the sessions that a command is for; all sessions if no option is given.
#[derive(Debug, Clone, Default, Args)]
pub struct SessionFilter {
    /// Only sessions in this phase
    #[arg(long)]
    pub phase: Option<PhaseArg>,
    /// Only sessions of this agent, by key
    #[arg(long, value_name = "AGENT")]
    pub agent: Option<String>,
    /// Only sessions with this model, by id
    #[arg(long, value_name = "MODEL")]
    pub model: Option<String>,
    /// Only sessions that began in this time, such as 30m, 2h or 7d, or since an instant such as 2026-01-15T10:30:45Z
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    pub since: Option<String>,
    /// Only sessions whose last turn ended for this reason, such as completed, timeout or repetition
    #[arg(long, value_name = "REASON", conflicts_with = "error")]
    pub stop_reason: Option<String>,
    /// Only sessions whose last turn ended with an error
    #[arg(long)]
    pub error: bool,
    /// Only sessions whose title has this text, or whose id or short id begins with it
    #[arg(long)]
    pub text: Option<String>,
}

impl SessionFilter {
    /// Whether every session is selected.
    pub fn selects_all(&self) -> bool {
        let Self { phase, agent, model, since, stop_reason, error, text } = self;
        let filters = [agent, model, since, stop_reason, text];
        phase.is_none() && filters.into_iter().all(Option::is_none) && !error
    }
}

/// The phase of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PhaseArg {
    /// The session waits for the user
    Idle,
    /// The session is in a turn
    Running,
    /// The session starts no new call
    Paused,
    /// The session has ended
    Ended,
}
