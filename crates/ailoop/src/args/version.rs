//! `ailoop version`.

use std::path::PathBuf;

use clap::Args;

/// Arguments of `ailoop version`.
#[derive(Debug, Clone, Copy, Args)]
pub struct VersionArgs {
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `ailoop man`.
#[derive(Debug, Clone, Args)]
pub struct ManArgs {
    /// Write a page for each command to this directory [default: print the page of ailoop]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}
