//! The session that a command is for.

use clap::Args;

/// The session that a command is for.
#[derive(Debug, Clone, Args)]
#[group(required = true, multiple = false)]
pub struct SessionRef {
    /// The session: its id, its short id, or the beginning of one
    pub session: Option<String>,
    /// The newest session that no other one began
    #[arg(long, short = 'c')]
    pub last: bool,
}
