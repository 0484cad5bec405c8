//! The `ailoop` command: a fleet in one process, and sessions from the command line.

pub mod args;
pub mod asking;
pub mod carry;
pub mod choose;
pub mod client;
pub mod commands;
pub mod config_check;
pub mod failure;
pub mod figures;
pub mod fleet;
pub mod follow;
pub mod heard;
pub mod instance;
pub mod nats_binary;
pub mod nats_server;
pub mod printable;
pub mod prompt;
pub mod render;
pub mod schemas;
pub mod signals;
pub mod stream;
pub mod terminal;
pub mod tools;

/// Chooses the cryptography of TLS for this process; later calls change nothing.
pub fn install_crypto() {
    let _already = rustls::crypto::ring::default_provider().install_default();
}

/// Carries a command out and says why where it fails.
pub fn run(cli: args::Cli, terminal: &terminal::Terminal) -> std::process::ExitCode {
    install_crypto();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            terminal.note(terminal::Style::Bad, &format!("error[internal]: no threads to run with: {error}"));
            return failure::Exit::Failed.code().into();
        }
    };
    let exit = runtime.block_on(commands::dispatch(cli.command, terminal)).unwrap_or_else(|failure| {
        terminal.failure(&failure);
        failure.exit()
    });
    // A blocked read of stdin cannot be cancelled, and must not keep the command.
    runtime.shutdown_background();
    exit.code().into()
}
