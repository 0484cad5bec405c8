//! `POST /chat/completions`: a request is a turn of a session.

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use contract::AgentId;
use contract::client_tool::ClientTool;

use super::chat_reply::{self, ChatReply};
use super::chat_request::{ChatRequest, ChatTurn};
use super::client::{OpenAiError, TurnCall, run_turn_request};
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::client_request::HttpState;
use crate::clock;
use crate::params;
use crate::session_api::SessionApi;
use crate::turn::{self, BegunTurn, RequestIdentity, SessionChoice, TurnRequest, TurnStream};

/// Name of the request in spans and metrics.
const NAME: &str = "openai.chat_completions";
/// Names the session of a request: one of these headers, the first that is there.
const SESSION_HEADERS: [&str; 2] = ["x-ailoop-session", "x-openwebui-chat-id"];
/// What a chat program wants beside the conversation, such as a title: agents are not started for it.
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
    let tools = request.client_tools()?;
    let names = tools.iter().map(|tool| tool.name.to_string()).collect();
    let begun = begin(api, &caller, &headers, &request, tools, &identity).await?;
    let turn = TurnStream::open(api, &caller, &begun, request.stream == Some(true)).await?;
    let reply = ChatReply::new(&request, names, &begun, clock::now());
    if request.stream == Some(true) {
        return Ok(chat_reply::stream(reply, turn).into_response());
    }
    Ok(axum::Json(chat_reply::collect(reply, turn).await?).into_response())
}

/// Answers the calls that the messages end with, or begins a turn with the last message.
async fn begin(
    api: &SessionApi,
    caller: &ApiCaller,
    headers: &HeaderMap,
    request: &ChatRequest,
    client_tools: Vec<ClientTool>,
    identity: &RequestIdentity,
) -> Result<BegunTurn, ApiError> {
    let named = SESSION_HEADERS.iter().find_map(|name| headers.get(*name)).map(|value| value.to_str());
    let named = named.transpose().map_err(|_| ApiError::bad_request("the name of the session is not ASCII"))?;
    let results = request.call_results()?;
    if !results.is_empty() {
        return turn::answer_calls(api, caller, results).await;
    }
    let ChatTurn { prompt, history } = request.turn()?;
    let agent: AgentId = params::parse("model", &request.model)?;
    let choice = match named.filter(|name| !name.is_empty()).or_else(|| request.session()) {
        Some(name) => SessionChoice::Named(name.to_owned()),
        None => SessionChoice::New { interactive: false },
    };
    let request = TurnRequest { agent, prompt, history, client_tools };
    turn::begin_turn(api, caller, request, choice, identity).await
}
