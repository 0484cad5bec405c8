//! `GET /agents`: the agents of the fleet, in the form of saved agents.

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use contract::ErrorCode;
use edge_core::access::ApiCaller;
use edge_core::api::SessionApi;
use edge_core::api_error::ApiError;
use edge_core::client_request::HttpState;
use serde_json::{Value, json};
use session_api::{AgentInfo, Method};

use crate::client::{Client, OpenAiError};
use crate::responses::items::PageQuery;

/// Lists the agents for `GET /agents`.
pub(super) async fn list(
    State(state): State<HttpState>,
    Client(caller): Client,
    RawQuery(query): RawQuery,
) -> Result<Response, OpenAiError> {
    state.api.authorize(&caller, Method::ListAgents, None).await?;
    let query = PageQuery::parse(query.as_deref().unwrap_or_default())?;
    let agents = state.api.list_agents(&caller).await?;
    Ok(axum::Json(query.page(agents.iter().map(to_json).collect())?).into_response())
}

/// Shows one agent for `GET /agents/{agent}`.
pub(super) async fn show(
    State(state): State<HttpState>,
    Client(caller): Client,
    Path(agent): Path<String>,
) -> Result<Response, OpenAiError> {
    state.api.authorize(&caller, Method::ListAgents, None).await?;
    Ok(axum::Json(to_json(&find(&state.api, &caller, &agent).await?)).into_response())
}

/// Finds an agent by its id or an alias.
pub(super) async fn find(api: &SessionApi, caller: &ApiCaller, name: &str) -> Result<AgentInfo, ApiError> {
    let found = api.list_agents(caller).await?.into_iter().find(|agent| agent.is_named(name));
    found.ok_or_else(|| {
        let name: String = name.chars().take(80).collect();
        ApiError::new(ErrorCode::UnknownAgent, format!("there is no agent {name:?}: GET /agents lists them"))
    })
}

fn to_json(agent: &AgentInfo) -> Value {
    let mut fields = settings(agent.model.as_deref().unwrap_or_default());
    fields["id"] = json!(agent.id);
    fields["object"] = json!("agent");
    fields["name"] = json!(agent.name);
    // An agent is a part of the configuration of the fleet, which has no times.
    fields["created_at"] = json!(0);
    fields["updated_at"] = json!(0);
    fields["metadata"] = json!({});
    fields
}

/// Returns what the protocol wants to know of any agent. Prompt and tools are the fleet's own.
pub(super) fn settings(model: &str) -> Value {
    json!({
        "model": model,
        "name": null,
        "instructions": null,
        "tools": [],
        "multi_agent": {"enabled": false},
        "reasoning": {"effort": null, "summary": null},
        "service_tier": "auto",
        "text": {"format": {"type": "text"}, "verbosity": "medium"},
    })
}
