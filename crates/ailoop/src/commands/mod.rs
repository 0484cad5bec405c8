//! The commands, one file each.

mod acp;
mod api_key;
mod approvals;
mod backup;
mod bootstrap;
mod budgets;
mod cell_table;
mod cells;
mod chat;
mod config;
mod config_trust;
mod context;
mod control;
mod conversation;
mod dead;
mod describe;
mod doctor;
mod drop_history;
mod erase;
mod export_import;
mod fleet_location;
mod history;
mod init;
mod lists;
mod live_display;
mod mail;
mod models;
mod move_session;
mod nats_auth;
mod own_fleet;
mod patterns;
mod prompt;
mod reading;
mod repair;
mod run;
mod selection;
mod session_reference;
mod session_tree;
mod settings;
mod shell;
mod stats;
mod status;
mod tools;
mod trace;
mod transcript;
mod up;
mod version;
mod watch;

use fleet_connection::client::EdgeClient;
use local_fleet::service_failure;
use terminal::Terminal;
use terminal::failure::{CommandFailure, Exit};

use self::control::ControlVerb;
use crate::args::{CliCommand, ConfigCommand, FleetTarget, PatternsCommand};
use crate::help;

/// Connects to a fleet that runs already.
pub(crate) async fn find_running_fleet(target: &FleetTarget) -> Option<EdgeClient> {
    fleet_location::find_fleet(target).ok()??.connect().await.ok()
}

/// Runs a command to its end. If it cannot use the configuration, all mistakes there are printed.
pub(crate) async fn dispatch(command: CliCommand, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    // `config check` has printed them, and a service alone reads only some of the files.
    let is_final = matches!(
        command,
        CliCommand::Config(ConfigCommand::Check(_))
            | CliCommand::Orchestrator
            | CliCommand::Gateway
            | CliCommand::Executor
            | CliCommand::ToolHost
            | CliCommand::Composer
            | CliCommand::Edge
    );
    let result = Box::pin(perform(command, terminal)).await;
    if is_final { result } else { result.map_err(|failure| config::explain_failure(failure, terminal)) }
}

async fn perform(command: CliCommand, terminal: &Terminal) -> Result<Exit, CommandFailure> {
    match command {
        CliCommand::Up(args) => Box::pin(up::run_fleet(&args, terminal)).await,
        CliCommand::Run(args) => Box::pin(run::run_prompt(&args, terminal)).await,
        CliCommand::Chat(args) => Box::pin(chat::chat(&args, terminal)).await,
        CliCommand::Sessions(args) => lists::list_sessions(&args, terminal).await,
        CliCommand::Watch(args) => watch::watch_session(&args, terminal).await,
        CliCommand::Acp(args) => Box::pin(acp::serve_editor(&args)).await,
        CliCommand::Transcript(args) => transcript::print_transcript(&args, terminal).await,
        CliCommand::Send(args) => control::send_message(&args, terminal).await,
        CliCommand::Pause(args) => control::control_session(ControlVerb::Pause, &args, terminal).await,
        CliCommand::Resume(args) => control::control_session(ControlVerb::Resume, &args, terminal).await,
        CliCommand::Cancel(args) => control::control_session(ControlVerb::CancelTurn, &args, terminal).await,
        CliCommand::Stop(args) => control::control_session(ControlVerb::Stop, &args, terminal).await,
        CliCommand::Fork(args) => control::fork_session(&args, terminal).await,
        CliCommand::Approvals(args) => approvals::run(&args, terminal).await,
        CliCommand::Mail(args) => mail::run(&args, terminal).await,
        CliCommand::Configure(args) => control::configure_session(&args, terminal).await,
        CliCommand::Trace(args) => trace::show_trace(&args, terminal).await,
        CliCommand::Replay(args) => history::replay_log(&args, terminal).await,
        CliCommand::Export(args) => export_import::export_session(&args, terminal).await,
        CliCommand::Import(args) => export_import::import_session(&args, terminal).await,
        CliCommand::Move(args) => Box::pin(move_session::move_session(&args, terminal)).await,
        CliCommand::Backup(args) => Box::pin(backup::backup_streams(&args, terminal)).await,
        CliCommand::Restore(args) => Box::pin(backup::restore_streams(&args, terminal)).await,
        CliCommand::Decisions(args) => history::list_decisions(&args, terminal).await,
        CliCommand::Doctor(args) => doctor::check_fleet(&args, terminal).await,
        CliCommand::Status(args) => status::show_status(&args, terminal).await,
        CliCommand::Top(args) => status::watch_status(&args, terminal).await,
        CliCommand::Describe(args) => describe::describe_session(&args, terminal).await,
        CliCommand::Budgets(args) => budgets::run(&args, terminal).await,
        CliCommand::Queues(args) => lists::list_queues(&args, terminal).await,
        CliCommand::Repair(args) => repair::repair_sessions(&args, terminal).await,
        CliCommand::Dead(command) => dead::run(&command, terminal).await,
        CliCommand::Stats(args) => stats::show_stats(&args, terminal).await,
        CliCommand::Models(args) => models::list_models(&args, terminal),
        CliCommand::ProbeModel(args) => models::probe_model(&args, terminal).await,
        CliCommand::Tools(args) => tools::run(&args, terminal).await,
        CliCommand::Patterns(PatternsCommand::Test(args)) => patterns::test_patterns(&args, terminal),
        CliCommand::Patterns(PatternsCommand::Suggest(args)) => patterns::suggest_patterns(&args, terminal).await,
        CliCommand::Config(command) => config::run(&command, terminal).await,
        CliCommand::ApiKey(command) => api_key::run(&command, terminal),
        CliCommand::Context(command) => context::run(&command, terminal),
        CliCommand::Prompt(command) => prompt::run(&command, terminal),
        CliCommand::Init(args) => init::write_project(&args, terminal),
        CliCommand::Help { words } => help::print_help(&words, terminal),
        CliCommand::Completion { shell } => shell::print_completion(shell, terminal),
        CliCommand::Man(args) => shell::write_manual(&args, terminal),
        CliCommand::Version(args) => Ok(version::print_version(args, terminal)),
        CliCommand::Bootstrap { fix, cell } => bootstrap::ensure_streams(fix, cell.as_ref(), terminal).await,
        CliCommand::NatsAuth(command) => Box::pin(nats_auth::run(&command, terminal)).await,
        CliCommand::Orchestrator => to_exit(loop_orchestrator::run().await),
        CliCommand::Gateway => to_exit(model_gateway::run().await),
        CliCommand::Executor => to_exit(tool_executor::run().await),
        CliCommand::ToolHost => to_exit(tool_host::run().await),
        CliCommand::Composer => to_exit(prompt_composer::run().await),
        CliCommand::Edge => to_exit(edge::run().await),
    }
}

/// Returns the exit of a service that runs alone, so that one image can be any of them.
fn to_exit(result: anyhow::Result<()>) -> Result<Exit, CommandFailure> {
    result.map(|()| Exit::Done).map_err(|error| service_failure(&error))
}
