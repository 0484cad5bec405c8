//! The `ailoop` command.

use std::process::ExitCode;

use ailoop::args::Cli;
use ailoop::terminal::Terminal;
use clap::Parser as _;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let terminal = Terminal::new();
    ailoop::run(cli, &terminal)
}
