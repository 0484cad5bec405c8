//! The `ailoop` command.

use std::process::ExitCode;

use ailoop::args::Cli;
use ailoop::{help, live_completion};
use clap::FromArgMatches as _;
use terminal::Terminal;

/// A fifth of the time of a busy fleet goes by in the allocator. This one takes half as long as glibc's, and returns
/// the memory of a burst to the system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Only a shell that completes sets the variable; then nothing else happens.
    live_completion::answer_shell();
    let matches = help::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let terminal = Terminal::new();
    ailoop::run(cli, &terminal)
}
