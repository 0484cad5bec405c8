//! The commands, one file each.

mod approvals;
mod bootstrap;
mod carry;
mod control;
mod converse;
mod dead;
mod desk;
mod lists;
mod log;
mod models;
mod run;
mod serve;
mod stats;
mod tools;
mod up;
mod watch;

use clap::CommandFactory as _;
use contract::{ErrorCode, TenantId};
use service::config::{NatsConfig, Settings};

use crate::args::{Cli, Command, PatternsCommand, Target};
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::instance::{Home, RunFile};
use crate::terminal::{ReaderGone, Terminal};

/// Carries a command out.
pub async fn dispatch(command: Command, terminal: &Terminal) -> Result<Exit, Failure> {
    match command {
        Command::Up(args) => Box::pin(up::up(&args, terminal)).await,
        Command::Run(args) => Box::pin(run::run(&args, terminal)).await,
        Command::Sessions(args) => lists::sessions(&args, terminal).await,
        Command::Watch(args) => watch::watch(&args, terminal).await,
        Command::Send(args) => control::send(&args, terminal).await,
        Command::Pause(args) => control::control(control::Verb::Pause, &args, terminal).await,
        Command::Resume(args) => control::control(control::Verb::Resume, &args, terminal).await,
        Command::Stop(args) => control::control(control::Verb::Stop, &args, terminal).await,
        Command::Fork(args) => control::fork(&args, terminal).await,
        Command::Approvals(args) => approvals::approvals(&args, terminal).await,
        Command::Configure(args) => control::configure(&args, terminal).await,
        Command::Replay(args) => log::replay(&args, terminal).await,
        Command::Export(args) => carry::export(&args, terminal).await,
        Command::Import(args) => carry::import(&args, terminal).await,
        Command::Decisions(args) => log::decisions(&args, terminal).await,
        Command::Queues(args) => lists::queues(&args, terminal).await,
        Command::Dead(command) => dead::dead(&command, terminal).await,
        Command::Stats(args) => stats::stats(&args, terminal).await,
        Command::Models(args) => models::models(&args, terminal),
        Command::ProbeModel(args) => models::probe(&args, terminal).await,
        Command::Tools(args) => tools::tools(&args, terminal).await,
        Command::Patterns(PatternsCommand::Test(args)) => desk::test(&args, terminal),
        Command::Patterns(PatternsCommand::Suggest(args)) => {
            let (agent, settings) = desk::settings(&args.agent)?;
            stats::suggest(&args, &settings, &agent, terminal).await
        }
        Command::Config(command) => desk::config(&command, terminal),
        Command::Prompt(command) => desk::prompt(&command, terminal),
        Command::Completion { shell } => Ok(completion(shell, terminal)),
        Command::Bootstrap { fix } => bootstrap::bootstrap(fix, terminal).await,
        Command::NatsConfig => Ok(finish(terminal.data(&bus::permissions::render(&bus::permissions::users())))),
        Command::Orchestrator => serve::orchestrator().await,
        Command::Gateway => serve::gateway().await,
        Command::Executor => serve::executor().await,
        Command::Composer => serve::composer().await,
        Command::Edge => serve::edge().await,
    }
}

fn completion(shell: clap_complete::Shell, terminal: &Terminal) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ailoop", &mut script);
    finish(terminal.data(&String::from_utf8_lossy(&script)))
}

/// Nobody who reads is no failure.
fn finish(printed: Result<(), ReaderGone>) -> Exit {
    match printed {
        Ok(()) | Err(ReaderGone) => Exit::Done,
    }
}

/// The gRPC address of the fleet that is meant: `--url`, `AILOOP_URL`, or the one that runs in this directory.
fn running(target: &Target) -> Option<String> {
    meant(target, |_| true)
}

/// As [`running`], of the fleets that take another session: not the one that ends with the session of an `ailoop run`.
fn staying(target: &Target) -> Option<String> {
    meant(target, |run| !run.one_session)
}

fn meant(target: &Target, fits: fn(&RunFile) -> bool) -> Option<String> {
    let home = Home::below(std::path::Path::new(""));
    target.url.clone().or_else(|| home.running().filter(fits).map(|run| run.grpc))
}

/// Connects to the fleet that is meant, which must run already.
async fn connect(target: &Target) -> Result<Client, Failure> {
    let url = running(target).ok_or_else(|| {
        Failure::new(ErrorCode::Unavailable, "no fleet runs in this directory")
            .help("start one with `ailoop up`, or pass --url or set AILOOP_URL")
    })?;
    Client::connect(&url, target.token.as_deref()).await
}

/// Where NATS is: as said, else where the fleet of this directory has it, else as configured.
fn nats(url: Option<&String>) -> Result<NatsConfig, Failure> {
    let nats = Settings::read(None)?.common()?.nats;
    let running = || Home::below(std::path::Path::new(".")).running().map(|run| run.nats);
    Ok(match url.cloned().or_else(running) {
        Some(url) => NatsConfig { url, ..nats },
        None => nats,
    })
}

fn tenant(text: &str) -> Result<TenantId, Failure> {
    TenantId::new(text).map_err(|_| Failure::usage(ErrorCode::BadRequest, format!("{text:?} is no tenant")))
}
