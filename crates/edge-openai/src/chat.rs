//! `POST /chat/completions`: a request is a turn of a session.

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use contract::{AgentId, ErrorCode};
use edge_core::access::ApiCaller;
use edge_core::api::SessionApi;
use edge_core::api_error::ApiError;
use edge_core::client_request::HttpState;
use edge_core::turn::{self, BegunTurn, ClientTurn, NewTurn, RequestIdentity, SessionChoice, TurnStream};
use edge_core::{clock, params};

use super::chat_reply::{self, ChatReply};
use super::chat_request::ChatRequest;
use super::client::{OpenAiError, SESSION_HEADER, TurnCall, run_turn_request};

/// Name of the request in spans and metrics.
const NAME: &str = "openai.chat_completions";
/// Header that names a task of a chat program beside the conversation, such as a title: agents are not started for it.
const TASK_HEADER: &str = "x-ailoop-task";

/// Runs a turn for `POST /chat/completions`.
pub(super) async fn complete(State(state): State<HttpState>, request: Request) -> Result<Response, OpenAiError> {
    run_turn_request(NAME, &state, request, |call| answer(&state.api, call)).await
}

async fn answer(api: &SessionApi, call: TurnCall) -> Result<Response, ApiError> {
    let TurnCall { caller, headers, body, identity } = call;
    let request = ChatRequest::parse(&body)?;
    if headers.get(TASK_HEADER).is_some_and(|task| !task.is_empty()) {
        let message = "an agent is not started for titles, tags and the like: use another model for tasks";
        return Err(ApiError::bad_request(message));
    }
    let begun = begin(api, &caller, &headers, &request, &identity).await?;
    let turn = TurnStream::open(api, &caller, &begun, request.stream == Some(true)).await?;
    let reply = ChatReply::new(&request, &begun, clock::now());
    if request.stream == Some(true) {
        return Ok(chat_reply::stream(reply, turn));
    }
    Ok(axum::Json(chat_reply::collect(reply, turn).await?).into_response())
}

/// Answers the calls that the messages end with, or begins a turn with the last message.
async fn begin(
    api: &SessionApi,
    caller: &ApiCaller,
    headers: &HeaderMap,
    request: &ChatRequest,
    identity: &RequestIdentity,
) -> Result<BegunTurn, ApiError> {
    let results = request.call_results();
    let mut lost = None;
    if !results.is_empty() {
        match turn::answer_calls(api, caller, results).await {
            // The messages may say what the session did that is not there any more.
            Err(error) if [ErrorCode::UnknownSession, ErrorCode::SessionEnded].contains(&error.code) => {
                lost = Some(error);
            }
            answered => return answered,
        }
    }
    let name = find_name(headers, request)?;
    let turn = request.turn(name.is_some()).map_err(|error| lost.unwrap_or(error))?;
    let ClientTurn { prompt, history, .. } = turn.with_instructions();
    let agent: AgentId = params::parse("model", &request.model)?;
    let choice = name.map_or(SessionChoice::New { interactive: false }, SessionChoice::Named);
    let request = NewTurn { agent, prompt, history, client_tools: request.client_tools()? };
    turn::begin_turn(api, caller, request, choice, identity).await
}

/// Returns the name of the session that a request continues or starts.
fn find_name(headers: &HeaderMap, request: &ChatRequest) -> Result<Option<String>, ApiError> {
    // A session that has not made the calls would not see their results.
    if request.ends_with_results() {
        return Ok(None);
    }
    let name = headers.get(SESSION_HEADER).map(|value| value.to_str()).transpose();
    let name = name.map_err(|_| ApiError::bad_request(format!("the header {SESSION_HEADER} is not ASCII")))?;
    Ok(name.filter(|name| !name.is_empty()).or_else(|| request.session()).map(str::to_owned))
}
