//! `POST /chat/completions`: a request is a turn of a session.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use contract::client_tool::{AnswerToolCall, ClientOutcome, ClientTool};
use contract::command::{MessageMode, SendUserMessage, Start};
use contract::tool::sha256_hex;
use contract::{AgentId, ErrorCode, SessionId};
use service::connections::Connection;

use super::chat_reply::{self, ChatReply};
use super::chat_request::{CallResult, ChatRequest, ChatTurn};
use super::errors::to_response;
use super::retry::RequestIdentity;
use crate::access::{self, ApiCaller};
use crate::api_error::ApiError;
use crate::client_request::{HttpState, authenticate, read_body};
use crate::clock;
use crate::commands::CommandReply;
use crate::method::Method;
use crate::params::{self, UnvalidatedCommand};
use crate::request_trace;
use crate::session_api::SessionApi;
use crate::turn::TurnStream;

/// Name of the request in spans and metrics.
const NAME: &str = "openai.chat_completions";
/// Names the session of a request: one of these headers, the first that is there.
const SESSION_HEADERS: [&str; 2] = ["x-ailoop-session", "x-openwebui-chat-id"];
/// What a chat program wants beside the conversation, such as a title: agents are not started for it.
const TASK_HEADER: &str = "x-ailoop-task";
/// Sessions of one name, of which all but the last have ended.
const GENERATIONS_MAX: u32 = 16;

/// Runs a turn for `POST /chat/completions`.
pub(super) async fn complete(
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
    for method in [Method::SendMessage, Method::WatchSession] {
        access::authorize_part(&caller, method)?;
    }
    let body = read_body(state, body, connection).await?;
    let request = ChatRequest::parse(&body)?;
    if headers.get(TASK_HEADER).is_some_and(|task| !task.is_empty()) {
        let message = "an agent is not started for titles, tags and the like: use another model for tasks";
        return Err(ApiError::bad_request(message));
    }
    let identity =
        RequestIdentity::new(&format!("{}/{}", caller.tenant, caller.subject()), headers, &body, clock::now());
    let tools = request.client_tools()?;
    let names = tools.iter().map(|tool| tool.name.to_string()).collect();
    let reply = begin_turn(api, &caller, headers, &request, tools, &identity).await?;
    let turn =
        TurnStream::open(api, &caller, reply.session_id.clone(), reply.seq, request.stream == Some(true)).await?;
    let reply = ChatReply::new(&request, names, &reply, clock::now());
    if request.stream == Some(true) {
        return Ok(chat_reply::stream(reply, turn).into_response());
    }
    Ok(axum::Json(chat_reply::collect(reply, turn).await?).into_response())
}

/// Begins the turn of a request, or finds the one that an earlier try of it has begun.
async fn begin_turn(
    api: &SessionApi,
    caller: &ApiCaller,
    headers: &HeaderMap,
    request: &ChatRequest,
    tools: Vec<ClientTool>,
    identity: &RequestIdentity,
) -> Result<CommandReply, ApiError> {
    let named = SESSION_HEADERS.iter().find_map(|name| headers.get(*name)).map(|value| value.to_str());
    let named = named.transpose().map_err(|_| ApiError::bad_request("the name of the session is not ASCII"))?;
    let results = request.call_results()?;
    if !results.is_empty() {
        return answer_calls(api, caller, results).await;
    }
    let turn = request.turn()?;
    let agent: AgentId = params::parse("model", &request.model)?;
    let started = match named.filter(|name| !name.is_empty()).or_else(|| request.session()) {
        Some(name) => continue_session(api, caller, name, (agent, turn, tools), identity).await?,
        None => start_session(api, caller, (agent, turn, tools), identity).await?,
    };
    if started.done {
        return Ok(started);
    }
    // A repeated request finds the turn.
    let message = "the message is stored, but its turn has not begun in time: repeat the request";
    Err(ApiError::new(ErrorCode::Unavailable, message).with_retry_after(std::time::Duration::from_secs(1)))
}

/// Starts a session for one request, whose messages are its history.
async fn start_session(
    api: &SessionApi,
    caller: &ApiCaller,
    (agent, turn, client_tools): (AgentId, ChatTurn, Vec<ClientTool>),
    identity: &RequestIdentity,
) -> Result<CommandReply, ApiError> {
    let id = choose_id(api, caller, identity, None).await?;
    let ChatTurn { prompt, history } = turn;
    let (agent, prompt) = (Some(agent), Some(prompt));
    let start = Start { agent, prompt, messages: history, client_tools, ..Start::default() };
    send_start(api, caller, &id, &id, start).await
}

/// Sends the message to the session of a name, and starts the session if there is none.
async fn continue_session(
    api: &SessionApi,
    caller: &ApiCaller,
    name: &str,
    (agent, turn, tools): (AgentId, ChatTurn, Vec<ClientTool>),
    identity: &RequestIdentity,
) -> Result<CommandReply, ApiError> {
    for generation in 0..GENERATIONS_MAX {
        let digest = sha256_hex(format!("{}\0{name}\0{generation}", caller.tenant).as_bytes());
        let session = format!("chat-{}", &digest[..32]);
        api.check_reach_of_known(caller, &session).await?;
        let key = params::parse_session_id(&session)?;
        let command = choose_id(api, caller, identity, Some(&key)).await?;
        let body = SendUserMessage {
            content: turn.prompt.clone(),
            mode: MessageMode::Queue,
            client_tools: Some(tools.clone()),
        };
        let send = UnvalidatedCommand::new(&session, &command, true, body)?;
        let send = api.validate_command(caller, send).await?;
        let outcome = match api.send(caller, send).await {
            Ok(pending) => pending.wait().await,
            Err(error) => Err(error),
        };
        match outcome {
            Err(error) if error.code == ErrorCode::SessionEnded => {}
            Err(error) if error.code == ErrorCode::UnknownSession => {
                let ChatTurn { prompt, history } = turn;
                let (agent, prompt) = (Some(agent), Some(prompt));
                let start = Start {
                    agent,
                    prompt,
                    messages: history,
                    interactive: true,
                    client_tools: tools,
                    ..Start::default()
                };
                return send_start(api, caller, &session, &command, start).await;
            }
            outcome => return outcome,
        }
    }
    let message = format!("the last {GENERATIONS_MAX} sessions of this name have ended: choose another name");
    Err(ApiError::new(ErrorCode::SessionEnded, message))
}

/// Answers the calls of the client, after which their turn goes on. A repeated answer changes nothing.
async fn answer_calls(
    api: &SessionApi,
    caller: &ApiCaller,
    results: Vec<CallResult>,
) -> Result<CommandReply, ApiError> {
    let mut last: Option<CommandReply> = None;
    for CallResult { session, call, content } in results {
        access::authorize_part(caller, Method::AnswerToolCall)?;
        api.check_reach(caller, session.as_str()).await?;
        let id = format!("answer-{}", &sha256_hex(format!("{call} {content}").as_bytes())[..32]);
        let body = AnswerToolCall { call, outcome: ClientOutcome::Ok, content };
        let command = UnvalidatedCommand::new(session.as_str(), &id, true, body)?;
        let reply = api.answer_call(caller, api.validate_command(caller, command).await?).await?.wait().await?;
        // The turn goes on after the last of them, whatever their order.
        last = Some(last.filter(|last| last.seq > reply.seq).unwrap_or(reply));
    }
    last.ok_or_else(|| ApiError::bad_request("there is no result"))
}

async fn send_start(
    api: &SessionApi,
    caller: &ApiCaller,
    session: &str,
    command: &str,
    start: Start,
) -> Result<CommandReply, ApiError> {
    let start = UnvalidatedCommand::new(session, command, true, start)?;
    let start = api.validate_command(caller, start).await?;
    Box::pin(api.start(caller, start)).await?.wait().await
}

/// Chooses the id of a request: that of its earlier try, or the first that is free. It is the id of a message in a session,
/// or else that of a session.
async fn choose_id(
    api: &SessionApi,
    caller: &ApiCaller,
    identity: &RequestIdentity,
    session: Option<&SessionId>,
) -> Result<String, ApiError> {
    let mut free = None;
    for ids in identity.ids() {
        let mut last = None;
        for id in ids {
            let is_known = match session {
                Some(session) => api.is_message_known(caller, session, &params::parse("command_id", &id)?).await?,
                None => api.is_session_known(caller, &params::parse_session_id(&id)?).await?,
            };
            if !is_known {
                free = free.or(Some(id));
                break;
            }
            last = Some(id);
        }
        if !identity.is_retry {
            break;
        }
        if let Some(earlier) = last {
            return Ok(earlier);
        }
    }
    free.ok_or_else(|| {
        let message =
            "too many equal requests in a quarter of an hour: name another session in the header X-Ailoop-Session";
        ApiError::new(ErrorCode::Overloaded, message)
    })
}
