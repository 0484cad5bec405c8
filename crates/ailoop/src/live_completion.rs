//! Completion of names that only the fleet or the configuration knows: sessions, agents, models, tools and gates.

use std::time::Duration;

use clap::builder::StyledStr;
use clap::{Args as _, Command, FromArgMatches as _};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use fleet_connection::client::{EdgeClient, SessionsApi};
use proto::{ListAgentsRequest, ListGatesRequest, ListModelsRequest, ListSessionsRequest, ListToolsRequest};
use terminal::printable::one_line;

use crate::args::FleetTarget;
use crate::commands::find_running_fleet;
use crate::help;

/// Longest wait for the fleet: a person waits at the prompt of a shell.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Names of one kind that are offered.
const NAMES_MAX: u32 = 100;

/// A kind of names.
#[derive(Debug, Clone, Copy)]
enum NameKind {
    Session,
    Agent,
    Model,
    Tool,
    Gate,
}

/// A name with its description.
struct KnownName {
    name: String,
    about: String,
}

/// Answers a shell that asks for candidates, and ends the process; does nothing else.
pub fn answer_shell() {
    CompleteEnv::with_factory(|| complete_names(help::command())).complete();
}

/// Adds completion of names to every argument that takes one.
fn complete_names(command: Command) -> Command {
    let command = command.mut_args(|arg| match name_kind(arg.get_id().as_str()) {
        Some(kind) => arg.add(ArgValueCandidates::new(move || candidates(kind))),
        None => arg,
    });
    command.mut_subcommands(complete_names)
}

fn name_kind(argument: &str) -> Option<NameKind> {
    match argument {
        "session" => Some(NameKind::Session),
        "agent" => Some(NameKind::Agent),
        "model" => Some(NameKind::Model),
        "tool" => Some(NameKind::Tool),
        "gate" => Some(NameKind::Gate),
        _ => None,
    }
}

/// Without a fleet there are no candidates; a shell shows no errors.
fn candidates(kind: NameKind) -> Vec<CompletionCandidate> {
    crate::install_crypto();
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return Vec::new() };
    let found = runtime.block_on(async { tokio::time::timeout(WAIT_MAX, fetch(kind)).await });
    let names = found.ok().flatten().unwrap_or_default();
    let candidate = |KnownName { name, about }: KnownName| {
        let about = (!about.is_empty()).then(|| StyledStr::from(one_line(&about)));
        CompletionCandidate::new(one_line(&name)).help(about)
    };
    names.into_iter().map(candidate).collect()
}

async fn fetch(kind: NameKind) -> Option<Vec<KnownName>> {
    let client = find_running_fleet(&target()?).await?;
    names_of(&client, kind).await
}

/// Returns the fleet of a command without options: that of the variables, of the directory or of the context.
fn target() -> Option<FleetTarget> {
    let command = FleetTarget::augment_args(Command::new("ailoop"));
    FleetTarget::from_arg_matches(&command.try_get_matches_from(["ailoop"]).ok()?).ok()
}

async fn names_of(client: &EdgeClient, kind: NameKind) -> Option<Vec<KnownName>> {
    let known = |name: String, about: String| KnownName { name, about };
    Some(match kind {
        NameKind::Session => {
            let request = ListSessionsRequest { limit: Some(NAMES_MAX), ..ListSessionsRequest::default() };
            let sessions = client.call(request, SessionsApi::list_sessions).await.ok()?.sessions;
            let about = |phase: &str, title: &str| format!("{phase}: {title}");
            sessions.into_iter().map(|one| known(one.session_id, about(&one.phase, &one.title))).collect()
        }
        NameKind::Agent => {
            let agents = client.call(ListAgentsRequest {}, SessionsApi::list_agents).await.ok()?.agents;
            agents.into_iter().map(|agent| known(agent.id, agent.name)).collect()
        }
        NameKind::Model => {
            let models = client.call(ListModelsRequest {}, SessionsApi::list_models).await.ok()?.models;
            models.into_iter().map(|model| known(model.id, String::new())).collect()
        }
        NameKind::Tool => {
            let tools = client.call(ListToolsRequest {}, SessionsApi::list_tools).await.ok()?.tools;
            tools.into_iter().map(|tool| known(tool.name, tool.description)).collect()
        }
        NameKind::Gate => {
            let request = ListGatesRequest { limit: Some(NAMES_MAX), ..ListGatesRequest::default() };
            let gates = client.call(request, SessionsApi::list_gates).await.ok()?.gates;
            gates
                .into_iter()
                .map(|gate| known(gate.gate, format!("{} in {}", gate.tool.unwrap_or_default(), gate.session_id)))
                .collect()
        }
    })
}
