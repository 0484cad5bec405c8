//! `POST /agents/sessions`: starts a session with its first message.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use edge_core::api::SessionApi;
use edge_core::api_error::ApiError;
use edge_core::client_request::HttpState;
use edge_core::turn::{self, NewTurn, SessionChoice};

use super::requests::CreateRequest;
use super::session_json::AgentSession;
use super::{catalogue, stream};
use crate::client::{OpenAiError, TurnCall, run_turn_request};

/// Name of the request in spans and metrics.
const NAME: &str = "openai.agents.sessions";

/// Starts a session for `POST /agents/sessions`.
pub(super) async fn create(State(state): State<HttpState>, request: Request) -> Result<Response, OpenAiError> {
    run_turn_request(NAME, &state, request, |call| answer(&state.api, call)).await
}

async fn answer(api: &SessionApi, call: TurnCall) -> Result<Response, ApiError> {
    let TurnCall { caller, body, identity, .. } = call;
    let mut request = CreateRequest::parse(&body)?;
    let agent = catalogue::find(api, &caller, request.agent()?).await?.id;
    let mut prompt = request.take_prompt()?;
    let instructions: Vec<String> = request.instructions().into_iter().collect();
    turn::add_instructions(&mut prompt, &mut [], &instructions);
    let (client_tools, metadata) = (request.client_tools()?, request.take_metadata()?);
    let start = NewTurn { agent, prompt, history: Vec::new(), client_tools };
    let begun = turn::begin_turn(api, &caller, start, SessionChoice::New { interactive: true }, &identity).await?;
    let started = api.reach(&caller, &begun.session_id).await?;
    let mut session = AgentSession::of_summary(&api.load_session(&started).await?.summary());
    session.metadata = metadata;
    if request.stream == Some(true) {
        return stream::from_start(api, &caller, &started, session).await;
    }
    Ok(axum::Json(session.to_json()).into_response())
}
