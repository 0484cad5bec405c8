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
mod mail;
mod models;
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
use contract::command::Features;
use contract::compose::ComposeRequest;
use contract::ids::AgentId;
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
        Command::Transcript(args) => transcript::transcript(&args, terminal).await,
        Command::Send(args) => control::send(&args, terminal).await,
        Command::Pause(args) => control::control(control::Verb::Pause, &args, terminal).await,
        Command::Resume(args) => control::control(control::Verb::Resume, &args, terminal).await,
        Command::Stop(args) => control::control(control::Verb::Stop, &args, terminal).await,
        Command::Fork(args) => control::fork(&args, terminal).await,
        Command::Approvals(args) => approvals::approvals(&args, terminal).await,
        Command::Mail(args) => mail::mail(&args, terminal).await,
        Command::Configure(args) => control::configure(&args, terminal).await,
        Command::Replay(args) => log::replay(&args, terminal).await,
        Command::Export(args) => carry::export(&args, terminal).await,
        Command::Import(args) => carry::import(&args, terminal).await,
        Command::Decisions(args) => log::decisions(&args, terminal).await,
        Command::Queues(args) => lists::queues(&args, terminal).await,
        Command::Repair(args) => repair::repair(&args, terminal).await,
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
        Command::NatsConfig => Ok(finish(terminal.data(&nats_permissions::render(&nats_permissions::users())))),
        Command::Orchestrator => serve::orchestrator().await,
        Command::Gateway => serve::gateway().await,
        Command::Executor => serve::executor().await,
        Command::ToolHost => serve::tool_host().await,
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

/// The fleet that a command is for.
enum Located {
    /// `--url` or `AILOOP_URL`.
    Given(String),
    /// The one that runs in this directory.
    Here(Home, RunFile),
}

impl Located {
    fn url(&self) -> &str {
        match self {
            Self::Given(url) => url,
            Self::Here(_, run) => &run.grpc,
        }
    }

    async fn connect(&self, token: Option<&str>) -> Result<Client, Failure> {
        let client = Client::connect(self.url(), token).await?;
        Ok(match self {
            Self::Given(_) => client,
            Self::Here(home, _) => client.following(home.clone()),
        })
    }

    /// What to say of a key that this shell has and the fleet was started without: the fleet does not see it.
    fn key_hint(&self, is_set: impl Fn(&str) -> bool) -> Option<String> {
        let Self::Here(_, run) = self else { return None };
        let unseen: Vec<&str> = run.missing_keys.iter().map(String::as_str).filter(|name| is_set(name)).collect();
        let (verb, it) = if unseen.len() == 1 { ("is", "it") } else { ("are", "them") };
        (!unseen.is_empty()).then(|| {
            let pid = run.pid;
            format!(
                "{} {verb} set here, but the fleet (process {pid}) was started without {it}: end it and start `ailoop \
                 up` again to use {it}",
                unseen.join(", ")
            )
        })
    }
}

/// The fleet that is meant: `--url`, `AILOOP_URL`, or the one that runs in this directory.
fn running(target: &Target) -> Option<Located> {
    meant(target, |_| true)
}

/// As [`running`], of the fleets that take another session: not the one that ends with the session of an `ailoop run`.
fn staying(target: &Target) -> Option<Located> {
    meant(target, |run| !run.one_session)
}

fn meant(target: &Target, fits: fn(&RunFile) -> bool) -> Option<Located> {
    if let Some(url) = &target.url {
        return Some(Located::Given(url.clone()));
    }
    let home = Home::below(std::path::Path::new(""));
    let run = home.running().filter(fits)?;
    Some(Located::Here(home, run))
}

/// Connects to the fleet that is meant, which must run already.
async fn connect(target: &Target) -> Result<Client, Failure> {
    let fleet = running(target).ok_or_else(|| {
        Failure::new(ErrorCode::Unavailable, "no fleet runs in this directory")
            .help("start one with `ailoop up`, or pass --url or set AILOOP_URL")
    })?;
    fleet.connect(target.token.as_deref()).await
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

/// What is asked of the composer about an agent and a model, without tools, which only a fleet knows.
pub(crate) fn compose_request(
    tenant: TenantId,
    agent: Option<AgentId>,
    model: Option<String>,
    features: Features,
) -> ComposeRequest {
    let named_features = features.clone();
    ComposeRequest { agent, model, features, named_features, ..ComposeRequest::new(tenant) }
}

fn tenant(text: &str) -> Result<TenantId, Failure> {
    TenantId::new(text).map_err(|_| Failure::usage(ErrorCode::BadRequest, format!("{text:?} is no tenant")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_hint_names_keys_that_only_this_shell_has() {
        let run = RunFile {
            pid: 7,
            version: String::new(),
            grpc: String::new(),
            ws: String::new(),
            nats: String::new(),
            one_session: false,
            missing_keys: vec!["A_KEY".to_owned(), "B_KEY".to_owned()],
        };
        let fleet = Located::Here(Home::below(std::path::Path::new("")), run);
        let hint = fleet.key_hint(|name| name == "B_KEY").unwrap();
        assert!(hint.starts_with("B_KEY is set here, but the fleet (process 7) was started without it"), "{hint}");
        assert_eq!(fleet.key_hint(|_| false), None);
        assert_eq!(Located::Given("http://x".to_owned()).key_hint(|_| true), None);
    }
}
