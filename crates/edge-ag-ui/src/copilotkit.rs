//! Requests of the front end of `CopilotKit` to its runtime, besides runs: the agents, the history of a thread, and a
//! stop.

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use edge_core::api_error::ApiError;
use edge_core::client_request::{HttpState, authenticate, read_body};
use edge_core::turn::{self, BegunTurn, TurnStart, TurnStream};
use edge_core::{access, request_trace};
use serde_json::{Map, Value, json};
use session_api::Method;

use super::errors::to_response;
use super::history;
use super::input::RunInput;
use super::names::RunNames;
use super::reply::RunReply;
use super::snapshot::ThreadSnapshot;
use super::stream;
use super::thread::Thread;

/// Lists the agents for `GET /ag-ui/info`.
pub(super) async fn info(State(state): State<HttpState>, parts: Parts) -> Response {
    match list(&state, &parts).await {
        Ok(agents) => axum::Json(json!({
            "version": env!("CARGO_PKG_VERSION"), "mode": "sse", "agents": agents,
            "audioFileTranscriptionEnabled": false, "telemetryDisabled": true,
        }))
        .into_response(),
        Err(error) => to_response(&error),
    }
}

async fn list(state: &HttpState, parts: &Parts) -> Result<Map<String, Value>, ApiError> {
    let caller = authenticate(state, parts).await?;
    state.api.authorize(&caller, Method::ListAgents, None).await?;
    let agents = state.api.list_agents(&caller).await?;
    let describe = |name: &str| json!({"name": name, "className": "HttpAgent", "description": name});
    Ok(agents.iter().map(|agent| (agent.id.to_string(), describe(&agent.name))).collect())
}

/// Shows a thread for `POST /ag-ui/agent/{agent}/connect`, and follows its turn if one runs.
pub(super) async fn connect(State(state): State<HttpState>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let trace = request_trace::of_headers(&parts.headers);
    let shown = show(&state, &parts, body);
    request_trace::run("ag_ui.connect", None, trace, shown).await.unwrap_or_else(|error| to_response(&error))
}

async fn show(state: &HttpState, parts: &Parts, body: Body) -> Result<Response, ApiError> {
    let caller = authenticate(state, parts).await?;
    let api = &state.api;
    api.authorize(&caller, Method::GetTranscript, None).await?;
    access::authorize_part(&caller, Method::WatchSession)?;
    let input = RunInput::parse(&read_body(state, body, &caller).await?)?;
    let names = RunNames::of(&input);
    let Some(thread) = Thread::find(api, &caller, &input.thread_id).await? else {
        return Ok(stream::send(RunReply::show_nothing(&names)));
    };
    let messages = history::load(api, &caller, &thread.session, &names).await?;
    // What came meanwhile is in the messages, and must not come again.
    let Some(thread) = Thread::find(api, &caller, &input.thread_id).await? else {
        return Ok(stream::send(RunReply::show_nothing(&names)));
    };
    let (session_id, seq) = (thread.session.id().clone(), thread.seq);
    // Only a message that waits needs a slot.
    let begun = BegunTurn { session_id, slot: 0, seq, start: TurnStart::Running };
    let turn = TurnStream::open(api, &caller, &begun, false).await?;
    let snapshot = ThreadSnapshot::new(api.budget().clone(), input.state, messages);
    let mut reply =
        RunReply::new(names, thread.session.id().clone(), thread.seq, snapshot).continues(thread.waiting(), Vec::new());
    let first = reply.show(thread.is_running);
    Ok(stream::follow(reply, first, turn))
}

/// Cancels the turn of a thread for `POST /ag-ui/agent/{agent}/stop/{thread}`.
pub(super) async fn stop(
    State(state): State<HttpState>,
    Path((_agent, thread)): Path<(String, String)>,
    parts: Parts,
) -> Response {
    let trace = request_trace::of_headers(&parts.headers);
    let stopped = stop_thread(&state, &parts, &thread);
    match request_trace::run("ag_ui.stop", None, trace, stopped).await {
        Ok(stopped) => axum::Json(json!({"stopped": stopped})).into_response(),
        Err(error) => to_response(&error),
    }
}

/// Returns whether there was something to stop.
async fn stop_thread(state: &HttpState, parts: &Parts, thread: &str) -> Result<bool, ApiError> {
    let caller = authenticate(state, parts).await?;
    let api = &state.api;
    api.authorize(&caller, Method::CancelTurn, None).await?;
    let Some(session) = turn::find_named(api, &caller, thread).await? else { return Ok(false) };
    api.cancel_turn(&caller, session.id(), "stopped by its front end".to_owned()).await
}
