//! The tools for sessions: they return at once, or wait as long as the client says.

use std::time::Duration;

use contract::commit::{Phase, SessionSummary};
use contract::event::Topic;
use contract::{AgentId, ErrorCode};
use edge_core::api::ReachedSession;
use edge_core::api_error::ApiError;
use edge_core::turn::{self, BegunTurn, SessionChoice};
use edge_core::{invoke, params};
use rmcp::model::CallToolResponse;
use serde_json::{Map, Value, json};
use session::readable::ReadableMessage;
use session_api::{Method, TranscriptParams, WatchParams};
use tokio::time::Instant;

use super::agent_tool;
use super::arguments::{AnswerArguments, SendArguments, StartArguments, StatusArguments, WAIT_SECONDS_MAX};
use super::results;
use super::session_tool::SessionTool;
use super::turn_follower::McpCall;

/// Entries of the list of sessions if the client gives no limit: a model reads them.
const LIST_DEFAULT: u32 = 20;

/// Runs a tool for sessions, and makes its result.
pub(super) async fn run(
    call: &McpCall,
    tool: SessionTool,
    arguments: Map<String, Value>,
) -> Result<CallToolResponse, ApiError> {
    let result = match tool {
        SessionTool::Start => start(call, params::parse_object(arguments)?).await?,
        SessionTool::Status => status(call, params::parse_object(arguments)?).await?,
        SessionTool::Send => send(call, params::parse_object(arguments)?).await?,
        SessionTool::Answer => return answer(call, params::parse_object(arguments)?).await,
        SessionTool::Stop => invoke(call, Method::StopSession, arguments).await?,
        SessionTool::List => list(call, arguments).await?,
    };
    Ok(results::of_value(result).into())
}

async fn start(call: &McpCall, arguments: StartArguments) -> Result<Value, ApiError> {
    call.api.authorize(&call.caller, Method::StartSession, None).await?;
    let agent = match arguments.agent {
        Some(agent) => agent,
        None => find_default_agent(call).await?,
    };
    let choice = SessionChoice::New { interactive: true };
    let BegunTurn { session_id, .. } = agent_tool::begin(call, agent, arguments.prompt, choice).await?;
    Ok(json!({"session_id": session_id, "state": "running"}))
}

async fn find_default_agent(call: &McpCall) -> Result<AgentId, ApiError> {
    let agents = call.api.list_agents(&call.caller).await?;
    let default = agents.into_iter().find(|agent| agent.is_default).map(|agent| agent.id);
    default.ok_or_else(|| ApiError::new(ErrorCode::UnknownAgent, "there is no default agent: name one"))
}

async fn status(call: &McpCall, arguments: StatusArguments) -> Result<Value, ApiError> {
    let StatusArguments { session_id, wait_seconds } = arguments;
    if wait_seconds > WAIT_SECONDS_MAX {
        return Err(ApiError::bad_request(format!("`wait_seconds` is {wait_seconds}, at most {WAIT_SECONDS_MAX}")));
    }
    let session = call.api.authorize_session(&call.caller, Method::GetSession, &session_id).await?;
    let mut summary = call.api.get_session(&call.caller, &session).await?;
    if wait_seconds > 0 && is_busy(&summary) {
        let until = Instant::now() + Duration::from_secs(wait_seconds);
        wait_for_rest(call, &session, &summary, until).await?;
        summary = call.api.get_session(&call.caller, &session).await?;
    }
    // With all of their arguments.
    let gates = call.api.load_session(&session).await?.gates();
    let answer = find_last_answer(call, &session, summary.turn).await?;
    let state = if gates.is_empty() { json!(summary.phase) } else { json!("waiting") };
    let mut found = json!({
        "session_id": session_id, "agent": summary.agent, "state": state, "turn": summary.turn, "seq": summary.seq,
        "answer": answer,
    });
    if let Some(reason) = summary.stop_reason {
        found["stop_reason"] = json!(reason);
    }
    if !gates.is_empty() {
        found["gates"] = json!(gates);
    }
    Ok(found)
}

/// Whether a turn runs that nobody is asked about.
fn is_busy(summary: &SessionSummary) -> bool {
    summary.phase == Phase::Running && summary.gates.is_empty()
}

/// Waits until the turn ends, a person is asked, or the time is over.
async fn wait_for_rest(
    call: &McpCall,
    session: &ReachedSession,
    summary: &SessionSummary,
    until: Instant,
) -> Result<(), ApiError> {
    let watch = WatchParams { session_id: summary.session_id.clone(), from_seq: summary.seq + 1, no_chunks: true };
    let events = call.api.open_stream(&call.caller, session, &watch).await?;
    let rest = [Topic::TurnCompleted, Topic::SessionEnded, Topic::GateOpened, Topic::StatusPaused];
    let waited = async {
        while let Ok(event) = events.next().await {
            if rest.contains(&event.topic) {
                break;
            }
        }
    };
    tokio::select! {
        _ = tokio::time::timeout_at(until, waited) => {}
        () = call.cancelled.cancelled() => {}
    }
    Ok(())
}

async fn find_last_answer(call: &McpCall, session: &ReachedSession, turn: u32) -> Result<Option<String>, ApiError> {
    let after = turn.saturating_sub(1);
    let page = TranscriptParams { session_id: session.id().clone(), after, limit: 1 };
    let page = call.api.get_transcript(&call.caller, session, &page).await?;
    let messages = page.turns.into_iter().flat_map(|turn| turn.messages);
    Ok(messages
        .filter_map(|message| match message {
            ReadableMessage::Assistant { text, .. } => Some(text).filter(|text| !text.is_empty()),
            ReadableMessage::User { .. } => None,
        })
        .next_back())
}

async fn send(call: &McpCall, arguments: SendArguments) -> Result<Value, ApiError> {
    let SendArguments { session_id, text, mode } = arguments;
    let params = json!({"session_id": session_id, "content": text, "mode": mode});
    let Value::Object(params) = params else { return Err(ApiError::bad_request("the arguments are no object")) };
    invoke(call, Method::SendMessage, params).await
}

/// Answers a gate, and waits for what follows. A repeated answer changes nothing.
async fn answer(call: &McpCall, arguments: AnswerArguments) -> Result<CallToolResponse, ApiError> {
    let session = arguments.session_id.clone();
    let reached = call.api.authorize_session(&call.caller, Method::AnswerGate, &session).await?;
    let gates = call.api.load_session(&reached).await?.gates();
    let open = gates.iter().find(|open| open.gate == arguments.gate);
    // A model may copy it wrongly. An answer that the loop refused would stay refused, also with the right one.
    if open.is_some_and(|open| open.arguments_sha256 != arguments.arguments_sha256) {
        let message = "`arguments_sha256` is not that of the gate: look at the gate again with `session_status`";
        return Err(ApiError::bad_request(message));
    }
    let begun = turn::answer_gate(&call.api, &call.caller, &session, arguments.to_answer()).await?;
    if arguments.wait && call.caller.may_use(Method::WatchSession) {
        return call.follow(begun).await;
    }
    Ok(results::of_value(json!({"session_id": session, "state": "running"})).into())
}

/// Lists sessions with what a model needs of them.
async fn list(call: &McpCall, mut arguments: Map<String, Value>) -> Result<Value, ApiError> {
    arguments.entry("limit").or_insert(Value::from(LIST_DEFAULT));
    let mut page = invoke(call, Method::ListSessions, arguments).await?;
    let shown = ["session_id", "agent", "phase", "title", "turn", "stop_reason", "started", "updated", "gates"];
    for session in page["sessions"].as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        session.retain(|name, _| shown.contains(&name.as_str()));
    }
    Ok(page)
}

/// Runs a method of the session API, under the key of the call where it is a command.
async fn invoke(call: &McpCall, method: Method, mut params: Map<String, Value>) -> Result<Value, ApiError> {
    params.retain(|name, _| name != "command_id");
    if let Some(id) = call.identity.command_id()
        && method.is_command()
    {
        params.insert("command_id".to_owned(), Value::from(id));
    }
    let result = invoke::call(&call.api, &call.caller, method, params, None).await?;
    serde_json::from_str(result.get()).map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))
}
