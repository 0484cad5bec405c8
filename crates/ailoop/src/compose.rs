//! Composes agents and prompts from the configuration on this disk, without a fleet.

use configuration::models::REHEARSAL;
use configuration::{Settings, UntrustedConfig};
use contract::command::Features;
use contract::compose::{ComposeReply, ComposeRequest, Composed};
use contract::ids::AgentId;
use contract::{ErrorCode, TenantId};
use prompt_composer::Catalog;
use terminal::failure::CommandFailure;
use terminal::{Style, Terminal};

use crate::args::AgentArgs;

/// A request to the composer without tools, since only a fleet knows its tools.
pub(crate) fn compose_request(
    tenant: TenantId,
    agent: Option<AgentId>,
    model: Option<String>,
    features: Features,
) -> ComposeRequest {
    let named_features = features.clone();
    ComposeRequest { agent, model, features, named_features, ..ComposeRequest::new(tenant) }
}

/// Says that the configuration of this directory is not used.
pub(crate) fn note_untrusted(terminal: &Terminal, untrusted: Option<&UntrustedConfig>) {
    if let Some(untrusted) = untrusted {
        terminal.note(Style::Warn, &untrusted.to_string());
    }
}

/// Reads agents, models and prompts, and says if those of this directory are not used.
pub(crate) fn read_catalog(terminal: &Terminal) -> Result<Catalog, CommandFailure> {
    let settings = Settings::read(None)?;
    note_untrusted(terminal, settings.paths().untrusted.as_ref());
    let config: prompt_composer::ComposerConfig = settings.section("composer")?;
    // A command that only shows prompts calls no model.
    Ok(Catalog::read(&config)?.with_stand_in_model(REHEARSAL))
}

/// Composes the agent that the command line names.
pub(crate) fn compose_agent(
    catalog: &Catalog,
    args: &AgentArgs,
    features: Features,
) -> Result<Composed, CommandFailure> {
    match catalog.compose(&agent_request(args, features)?) {
        ComposeReply::Composed(composed) => Ok(*composed),
        ComposeReply::Refused { code, message } => Err(CommandFailure::new(code, message)),
    }
}

/// A request for the agent that the command line names.
pub(crate) fn agent_request(args: &AgentArgs, features: Features) -> Result<ComposeRequest, CommandFailure> {
    let tenant = parse_tenant(&args.tenant)?;
    let agent = parse_agent(args.agent.as_deref())?;
    Ok(compose_request(tenant, agent, args.model.clone(), features))
}

/// Reads a tenant id of the command line.
pub(crate) fn parse_tenant(text: &str) -> Result<TenantId, CommandFailure> {
    TenantId::new(text)
        .map_err(|_| CommandFailure::usage(ErrorCode::BadRequest, format!("{text:?} is not a valid tenant id")))
}

fn parse_agent(name: Option<&str>) -> Result<Option<AgentId>, CommandFailure> {
    let parse = |name: &str| {
        AgentId::new(&name.to_lowercase())
            .map_err(|error| CommandFailure::usage(ErrorCode::UnknownAgent, error.to_string()))
    };
    name.map(parse).transpose()
}
