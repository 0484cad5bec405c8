//! `POST /agents/sessions`: starts a session with its first message.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use contract::subject::SessionKey;
use service::connections::Connection;

use super::requests::CreateRequest;
use super::session_json::AgentSession;
use super::{catalogue, stream};
use crate::access;
use crate::api_error::ApiError;
use crate::client_request::{HttpState, authenticate, read_body};
use crate::clock;
use crate::method::Method;
use crate::openai::errors::to_response;
use crate::request_trace;
use crate::turn::{self, RequestIdentity, SessionChoice, TurnRequest};

/// Name of the request in spans and metrics.
const NAME: &str = "openai.agents.sessions";

/// Starts a session for `POST /agents/sessions`.
pub(super) async fn create(
    State(state): State<HttpState>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let trace = request_trace::of_headers(&parts.headers);
    let answered = request_trace::run(NAME, None, trace, answer(&state, &parts.headers, connection, body)).await;
    answered.unwrap_or_else(|error| to_response(&error))
}

async fn answer(
    state: &HttpState,
    headers: &HeaderMap,
    connection: Arc<Connection>,
    body: Body,
) -> Result<Response, ApiError> {
    let caller = authenticate(state, headers, &connection).await?;
    let api = &state.api;
    api.authorize(&caller, Method::StartSession, None).await?;
    access::authorize_part(&caller, Method::WatchSession)?;
    let body = read_body(state, body, connection).await?;
    let mut request = CreateRequest::parse(&body)?;
    let identity = RequestIdentity::new(&caller.name(), headers, &body, clock::now());
    let agent = catalogue::find(api, &caller, request.agent()?).await?.id;
    let mut prompt = request.take_prompt()?;
    let instructions: Vec<String> = request.instructions().into_iter().collect();
    turn::add_instructions(&mut prompt, &mut [], &instructions);
    let (client_tools, metadata) = (request.client_tools()?, request.take_metadata()?);
    let start = TurnRequest { agent, prompt, history: Vec::new(), client_tools };
    let begun = turn::begin_turn(api, &caller, start, SessionChoice::New { interactive: true }, &identity).await?;
    let key = SessionKey { tenant: caller.tenant.clone(), session: begun.session_id };
    let mut session = AgentSession::of_summary(&api.load_session_of(&key).await?.summary());
    session.metadata = metadata;
    if request.stream == Some(true) {
        return stream::from_start(api, &caller, session).await;
    }
    Ok(axum::Json(session.to_json()).into_response())
}
