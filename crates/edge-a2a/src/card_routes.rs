//! The cards over HTTP, for everybody, with an entity tag.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use contract::tool::sha256_hex;
use edge_core::access::{ApiCaller, RequestCredentials, base_url};
use edge_core::api::SessionApi;
use edge_core::api_error::ApiError;
use edge_core::client_request::{HttpState, authenticate, connection_of};
use session_api::AgentInfo;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::card;
use super::errors::A2aError;
use super::send::choose_agent;

/// Time for which the agents that anybody may see are cached: requests without a credential must not cost more reads.
const AGENTS_AGE_MAX: Duration = Duration::from_secs(10);

/// State that the routes of A2A share.
#[derive(Debug, Clone)]
pub(super) struct CardState {
    pub(super) http: HttpState,
    pub(super) is_tls: bool,
    pub(super) public_agents: Arc<PublicAgents>,
}

/// Base URL of the edge in a card, and whether clients need a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CardAddress {
    pub(super) base_url: String,
    pub(super) needs_credential: bool,
}

impl CardState {
    /// Returns how the client of these headers addresses the edge.
    pub(super) fn address(&self, headers: &HeaderMap) -> Result<CardAddress, ApiError> {
        let base_url = base_url(headers, self.is_tls)
            .ok_or_else(|| ApiError::bad_request("the header `Host` is missing or malformed"))?;
        Ok(CardAddress { base_url, needs_credential: self.http.authenticator.needs_credential() })
    }
}

/// The agents of the edge's own tenant, read for clients without a credential.
#[derive(Debug, Default)]
pub(super) struct PublicAgents {
    /// Held while the agents are read, so that they are read once.
    known: Mutex<Option<(Instant, Arc<Vec<AgentInfo>>)>>,
}

impl PublicAgents {
    async fn get(&self, api: &SessionApi, caller: &ApiCaller) -> Result<Arc<Vec<AgentInfo>>, ApiError> {
        let mut known = self.known.lock().await;
        if let Some((read, agents)) = &*known
            && read.elapsed() < AGENTS_AGE_MAX
        {
            return Ok(agents.clone());
        }
        let agents = Arc::new(api.list_agents(caller).await?);
        *known = Some((Instant::now(), agents.clone()));
        Ok(agents)
    }
}

/// Answers with the card of the agent in the path, or with that of the default agent.
pub(super) async fn show(State(state): State<CardState>, agent: Option<Path<String>>, parts: Parts) -> Response {
    match make_card(&state, &parts, agent.as_ref().map(|Path(agent)| agent.as_str())).await {
        Ok(response) => response,
        Err(error) => {
            let fault = A2aError::from(error);
            let kind = [(header::CONTENT_TYPE, "application/json")];
            (fault.status().0, kind, fault.to_body().to_string()).into_response()
        }
    }
}

async fn make_card(state: &CardState, parts: &Parts, agent: Option<&str>) -> Result<Response, ApiError> {
    let headers = &parts.headers;
    let CardAddress { base_url, needs_credential } = state.address(headers)?;
    let has_credential = headers.contains_key(header::AUTHORIZATION) || headers.contains_key("x-api-key");
    let (agents, cached) = if has_credential {
        let caller = authenticate(&state.http, parts).await?;
        (Arc::new(state.http.api.list_agents(&caller).await?), "private, max-age=60")
    } else {
        let credentials = RequestCredentials::of_request(headers, connection_of(&parts.extensions)?);
        let caller = state.http.authenticator.public_caller(&credentials);
        (state.public_agents.get(&state.http.api, &caller).await?, "public, max-age=60")
    };
    let card = card::public_card(choose_agent(&agents, agent)?, &base_url, needs_credential);
    let body = card.to_string();
    let tag = format!("\"{}\"", &sha256_hex(body.as_bytes())[..32]);
    let common = [(header::CACHE_CONTROL, cached.to_owned()), (header::ETAG, tag.clone())];
    let asked = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if asked.split(',').any(|known| known.trim().trim_start_matches("W/") == tag) {
        return Ok((StatusCode::NOT_MODIFIED, common).into_response());
    }
    let vary = [(header::VARY, "authorization, x-api-key, host"), (header::CONTENT_TYPE, "application/json")];
    Ok((common, vary, body).into_response())
}
