//! Composes agents and prompts from the configuration on this disk, without a fleet.

use contract::command::Features;
use contract::compose::{ComposeReply, ComposeRequest, Composed};
use contract::ids::AgentId;
use contract::{ErrorCode, TenantId};
use prompt_composer::Catalog;

use crate::args::AgentArgs;
use crate::default_model::REHEARSAL;
use crate::failure::CommandFailure;

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

/// Reads agents, models and prompts.
pub(crate) fn read_catalog() -> Result<Catalog, CommandFailure> {
    let refuse = |error: configuration::ConfigError| CommandFailure::new(error.code(), error.to_string());
    let config: prompt_composer::ComposerConfig = configuration::settings::load("composer").map_err(refuse)?;
    let catalog = Catalog::read(&config).map_err(refuse)?;
    // A command that only shows prompts calls no model.
    Ok(catalog.with_stand_in_model(REHEARSAL))
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
