//! `ailoop version`.

use clap::Args;

/// Arguments of `ailoop version`.
#[derive(Debug, Clone, Copy, Args)]
pub struct VersionArgs {
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}
