//! The commands, one file each.

mod approvals;
mod bootstrap;
mod config;
mod control;
mod conversation;
mod dead;
mod export_import;
mod fleet_location;
mod history;
mod lists;
mod mail;
mod models;
mod output;
mod patterns;
mod prompt;
mod repair;
mod run;
mod serve;
mod settings;
mod stats;
mod tools;
mod transcript;
mod up;
mod watch;

use clap::CommandFactory as _;

use self::control::ControlVerb;
use crate::args::{Cli, Command, PatternsCommand};
use crate::failure::{CommandFailure, Exit};
use crate::terminal::Terminal;

/// Runs a command to its end.
pub(crate) async fn dispatch(command: Command, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    match command {
        Command::Up(args) => Box::pin(up::run_fleet(&args, terminal)).await,
        Command::Run(args) => Box::pin(run::run_prompt(&args, terminal)).await,
        Command::Sessions(args) => lists::list_sessions(&args, terminal).await,
        Command::Watch(args) => watch::watch_session(&args, terminal).await,
        Command::Transcript(args) => transcript::print_transcript(&args, terminal).await,
        Command::Send(args) => control::send_message(&args, terminal).await,
        Command::Pause(args) => control::control_session(ControlVerb::Pause, &args, terminal).await,
        Command::Resume(args) => control::control_session(ControlVerb::Resume, &args, terminal).await,
        Command::Stop(args) => control::control_session(ControlVerb::Stop, &args, terminal).await,
        Command::Fork(args) => control::fork_session(&args, terminal).await,
        Command::Approvals(args) => approvals::run(&args, terminal).await,
        Command::Mail(args) => mail::run(&args, terminal).await,
        Command::Configure(args) => control::configure_session(&args, terminal).await,
        Command::Replay(args) => history::replay_log(&args, terminal).await,
        Command::Export(args) => export_import::export_session(&args, terminal).await,
        Command::Import(args) => export_import::import_session(&args, terminal).await,
        Command::Decisions(args) => history::list_decisions(&args, terminal).await,
        Command::Queues(args) => lists::list_queues(&args, terminal).await,
        Command::Repair(args) => repair::repair_sessions(&args, terminal).await,
        Command::Dead(command) => dead::run(&command, terminal).await,
        Command::Stats(args) => stats::show_stats(&args, terminal).await,
        Command::Models(args) => models::list_models(&args, terminal),
        Command::ProbeModel(args) => models::probe_model(&args, terminal).await,
        Command::Tools(args) => tools::run(&args, terminal).await,
        Command::Patterns(PatternsCommand::Test(args)) => patterns::test_patterns(&args, terminal),
        Command::Patterns(PatternsCommand::Suggest(args)) => patterns::suggest_patterns(&args, terminal).await,
        Command::Config(command) => config::run(&command, terminal),
        Command::Prompt(command) => prompt::run(&command, terminal),
        Command::Completion { shell } => Ok(print_completion(shell, terminal)),
        Command::Bootstrap { fix } => bootstrap::ensure_streams(fix, terminal).await,
        Command::NatsConfig => {
            let config = nats_permissions::render(&nats_permissions::users());
            Ok(output::finish(terminal.print_data(&config)))
        }
        Command::Orchestrator => serve::to_exit(loop_orchestrator::run().await),
        Command::Gateway => serve::to_exit(model_gateway::run().await),
        Command::Executor => serve::to_exit(tool_executor::run().await),
        Command::ToolHost => serve::to_exit(tool_host::run().await),
        Command::Composer => serve::to_exit(prompt_composer::run().await),
        Command::Edge => serve::to_exit(edge::run().await),
    }
}

fn print_completion(shell: clap_complete::Shell, terminal: &Terminal) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ailoop", &mut script);
    output::finish(terminal.print_data(&String::from_utf8_lossy(&script)))
}
