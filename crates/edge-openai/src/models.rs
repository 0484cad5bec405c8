//! `GET /models`: the agents.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use contract::ErrorCode;
use edge_core::access::ApiCaller;
use edge_core::api_error::ApiError;
use edge_core::client_request::HttpState;
use serde_json::{Value, json};
use session_api::{AgentInfo, Method};

use super::client::{Client, OpenAiError};

/// Lists the agents for `GET /models`.
pub(super) async fn list(State(state): State<HttpState>, Client(caller): Client) -> Result<Response, OpenAiError> {
    let data: Vec<Value> = load(&state, &caller).await?.iter().map(to_model).collect();
    Ok(axum::Json(json!({"object": "list", "data": data})).into_response())
}

/// Finds one agent for `GET /models/{model}`.
pub(super) async fn show(
    State(state): State<HttpState>,
    Client(caller): Client,
    Path(model): Path<String>,
) -> Result<Response, OpenAiError> {
    let agents = load(&state, &caller).await?;
    let found = agents.iter().find(|agent| agent.is_named(&model)).map(to_model);
    let model: String = model.chars().take(80).collect();
    let message = format!("there is no model {model:?}: GET /models lists the agents");
    let found = found.ok_or_else(|| ApiError::new(ErrorCode::UnknownAgent, message))?;
    Ok(axum::Json(found).into_response())
}

async fn load(state: &HttpState, caller: &ApiCaller) -> Result<Vec<AgentInfo>, ApiError> {
    state.api.authorize(caller, Method::ListAgents, None).await?;
    state.api.list_agents(caller).await
}

/// An agent has no time of creation.
fn to_model(agent: &AgentInfo) -> Value {
    json!({"id": agent.id, "object": "model", "created": 0, "owned_by": "ailoop", "name": agent.name})
}
