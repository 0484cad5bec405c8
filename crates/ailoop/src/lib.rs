//! The `ailoop` command: a fleet in one process, and sessions from the command line.
//!
//! # Layout
//!
//! - `args` declares the commands; `commands` has a module for each of them.
//! - `fleet` runs the services and a nats-server in this process.
//! - `chat`, `render`, `markdown`, `table` and `terminal` write to the terminal.
//! - `acp` serves the Agent Client Protocol to editors.
//! - `backup`, `erase`, `export_import` and `move_session` administer the streams of a fleet directly.

mod acp;
pub mod args;
mod backup;
mod chat;
mod client;
mod columns;
mod commands;
mod completion;
mod compose;
mod config_check;
mod contexts;
mod default_model;
mod delegation;
mod directory_record;
mod erase;
pub mod export_import;
pub mod failure;
mod fleet;
mod fleet_status;
mod format;
mod gate_prompt;
pub mod help;
mod instance;
pub mod live_completion;
mod local_credentials;
mod markdown;
pub mod move_session;
pub mod nats_binary;
mod nats_server;
mod notification;
mod output;
mod printable;
mod private_file;
mod render;
mod scaffold;
pub mod schemas;
mod signals;
mod spend_sum;
mod stream;
mod table;
pub mod terminal;
mod text_argument;
mod tool_summary;
mod tools;
mod version;

/// Sets the cryptography provider of TLS for this process; later calls change nothing.
pub fn install_crypto() {
    let _already_set = rustls::crypto::ring::default_provider().install_default();
}

/// Runs a command, and prints the failure if it fails.
pub fn run(cli: args::Cli, terminal: &terminal::Terminal) -> std::process::ExitCode {
    install_crypto();
    version::announce();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            terminal.note(terminal::Style::Bad, &format!("error[internal]: the runtime cannot start: {error}"));
            return failure::Exit::Failed.code().into();
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
