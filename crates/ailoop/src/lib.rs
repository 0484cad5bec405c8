//! The `ailoop` command: a fleet in one process, and sessions from the command line.
//!
//! # Layout
//!
//! - `args` declares the commands; `commands` has a module for each of them.
//! - `help` has the pages of `ailoop help`, and `live_completion` answers a shell that completes.
//! - `fleet_status`, `compose`, `output`, `scaffold`, `signals` and `version` are parts of several commands.

pub mod args;
mod commands;
mod compose;
mod fleet_status;
pub mod help;
pub mod live_completion;
mod output;
mod scaffold;
mod signals;
mod version;

use terminal::failure::Exit;
use terminal::{Style, Terminal};

/// Sets the cryptography provider of TLS for this process; later calls change nothing.
pub fn install_crypto() {
    let _already_set = rustls::crypto::ring::default_provider().install_default();
}

/// Runs a command, and prints the failure if it fails.
pub fn run(cli: args::Cli, terminal: &Terminal) -> std::process::ExitCode {
    install_crypto();
    version::announce();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            terminal.note(Style::Bad, &format!("error[internal]: the runtime cannot start: {error}"));
            return Exit::Failed.code().into();
        }
    };
    let exit = runtime.block_on(commands::dispatch(cli.command, terminal)).unwrap_or_else(|failure| {
        terminal.print_failure(&failure);
        failure.exit()
    });
    // A blocking read of stdin cannot be cancelled, and must not delay the exit.
    runtime.shutdown_background();
    exit.code().into()
}
