//! `GET /models`: the agents.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use contract::ErrorCode;
use serde_json::{Value, json};
use service::connections::Connection;

use super::errors::to_response;
use crate::api_error::ApiError;
use crate::client_request::{HttpState, authenticate};
use crate::method::Method;
use crate::session_api::AgentInfo;

/// Lists the agents for `GET /models`.
pub(super) async fn list(
    State(state): State<HttpState>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: HeaderMap,
) -> Response {
    match load(&state, &headers, &connection).await {
        Ok(agents) => {
            let data: Vec<Value> = agents.iter().map(to_model).collect();
            axum::Json(json!({"object": "list", "data": data})).into_response()
        }
        Err(error) => to_response(&error),
    }
}

/// Finds one agent for `GET /models/{model}`.
pub(super) async fn show(
    State(state): State<HttpState>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: HeaderMap,
    Path(model): Path<String>,
) -> Response {
    let found = load(&state, &headers, &connection).await.and_then(|agents| {
        let found = agents.iter().find(|agent| agent.is_named(&model)).map(to_model);
        let model: String = model.chars().take(80).collect();
        let message = format!("there is no model {model:?}: GET /models lists the agents");
        found.ok_or_else(|| ApiError::new(ErrorCode::UnknownAgent, message))
    });
    match found {
        Ok(found) => axum::Json(found).into_response(),
        Err(error) => to_response(&error),
    }
}

async fn load(
    state: &HttpState,
    headers: &HeaderMap,
    connection: &Arc<Connection>,
) -> Result<Vec<AgentInfo>, ApiError> {
    let caller = authenticate(state, headers, connection).await?;
    state.api.authorize(&caller, Method::ListAgents, None).await?;
    state.api.list_agents(&caller).await
}

/// An agent has no time of creation.
fn to_model(agent: &AgentInfo) -> Value {
    json!({"id": agent.id, "object": "model", "created": 0, "owned_by": "ailoop", "name": agent.name})
}
