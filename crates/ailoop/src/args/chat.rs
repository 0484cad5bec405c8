//! `ailoop chat`.

use clap::Args;

use super::fleet::Files;
use super::target::FleetTarget;

const CHAT_EXAMPLES: &str = "\
Examples:
  ailoop chat
  ailoop chat --last
  ailoop chat 01a2143f";

/// Arguments of `ailoop chat`.
#[derive(Debug, Clone, Args)]
#[command(after_help = CHAT_EXAMPLES)]
pub struct ChatArgs {
    /// The session to go on with: its id, its short id, or the beginning of one [default: a new one]
    pub session: Option<String>,
    /// Go on with the newest session
    #[arg(long, short = 'c', conflicts_with = "session")]
    pub last: bool,
    /// The agent of a new session, by key or first name
    #[arg(long, short)]
    pub agent: Option<String>,
    /// The model of a new session, as in models.yaml, or provider/model
    #[arg(long, short)]
    pub model: Option<String>,
    /// The directories of the file tools.
    #[command(flatten)]
    pub files: Files,
    /// The fleet that the command is for.
    #[command(flatten)]
    pub target: FleetTarget,
}
