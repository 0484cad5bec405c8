//! `POST /agents/sessions/{session}/events`: what a client does to a session.

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use contract::command::{AnswerDecision, ControlReason};
use contract::event::GateKind;
use contract::model::Content;
use edge_core::access::{self, ApiCaller};
use edge_core::api::{ReachedSession, SessionApi};
use edge_core::api_error::ApiError;
use edge_core::client_request::{HttpState, authenticate, read_body};
use edge_core::turn::{self, GivenResult, NewTurn, RequestIdentity, SessionChoice};
use edge_core::{commands, params, request_trace};
use session_api::Method;

use super::requests::{self, SessionInput};
use super::sessions::parse_id;
use crate::client::OpenAiError;

/// Name of the request in spans and metrics.
const NAME: &str = "openai.agents.events";

/// Takes the events of a client for `POST /agents/sessions/{session}/events`.
pub(super) async fn take(
    State(state): State<HttpState>,
    Path(session): Path<String>,
    request: Request,
) -> Result<Response, OpenAiError> {
    let (parts, body) = request.into_parts();
    let trace = request_trace::of_headers(&parts.headers);
    let answer = accept(&state, &parts, &session, body);
    Ok(request_trace::run(NAME, Some(&session), trace, answer).await?)
}

async fn accept(state: &HttpState, parts: &Parts, session: &str, body: Body) -> Result<Response, ApiError> {
    let caller = authenticate(state, parts).await?;
    let session = parse_id(session)?;
    let body = read_body(state, body, &caller).await?;
    let inputs = requests::parse_events(&body)?;
    let subject = format!("{}/{session}", caller.name());
    let identity = RequestIdentity::of_request(&state.api, &caller, &subject, &parts.headers, &body).await?;
    for input in &inputs {
        let method = match input {
            SessionInput::Message(_) => Method::SendMessage,
            SessionInput::Cancel => Method::CancelTurn,
            SessionInput::ToolResult { .. } => Method::AnswerToolCall,
            SessionInput::Approval { .. } => Method::AnswerGate,
        };
        access::authorize(&caller, method, Some(session.as_str()))?;
    }
    let session = state.api.reach(&caller, &session).await?;
    let applied = async {
        for input in inputs {
            apply(&state.api, &caller, &session, input, &identity).await?;
        }
        Ok(StatusCode::ACCEPTED.into_response())
    };
    identity.settle(applied.await)
}

async fn apply(
    api: &SessionApi,
    caller: &ApiCaller,
    reached: &ReachedSession,
    input: SessionInput,
    identity: &RequestIdentity,
) -> Result<(), ApiError> {
    let session = reached.id();
    match input {
        SessionInput::Message(content) => send(api, caller, reached, content, identity).await,
        SessionInput::Cancel => {
            let id = identity.command_id().unwrap_or_default();
            api.perform(caller, commands::CANCEL_TURN, session, &id, ControlReason::default()).await.map(drop)
        }
        SessionInput::ToolResult { call, outcome, content } => {
            let result = GivenResult { session: session.clone(), call, outcome, content };
            turn::answer_calls(api, caller, vec![result]).await.map(drop)
        }
        SessionInput::Approval { gate, decision } => {
            let gates = api.load_session(reached).await?.gates();
            let is_question = gates.iter().any(|open| open.gate == gate && open.kind == GateKind::Question);
            if is_question && decision == AnswerDecision::Approve {
                return Err(ApiError::bad_request("a question is answered with a message of the user"));
            }
            let answer = turn::answer_to_gate(&gates, gate, decision);
            turn::answer_gate(api, caller, session, answer).await.map(drop)
        }
    }
}

/// Answers the question that the turn waits with, or sends a message.
async fn send(
    api: &SessionApi,
    caller: &ApiCaller,
    reached: &ReachedSession,
    content: Content,
    identity: &RequestIdentity,
) -> Result<(), ApiError> {
    let (state, session) = (api.load_session(reached).await?, reached.id());
    if let Some(gate) = state.gates().into_iter().find(|gate| gate.kind == GateKind::Question) {
        let answer = turn::answer_to_question(gate.gate, gate.arguments_sha256, content.text());
        return turn::answer_gate(api, caller, session, answer).await.map(drop);
    }
    let request = NewTurn {
        agent: params::parse("agent", &state.summary().agent)?,
        prompt: content,
        history: Vec::new(),
        client_tools: Vec::new(),
    };
    let choice = SessionChoice::Unchanged(session.clone());
    turn::begin_turn(api, caller, request, choice, identity).await.map(drop)
}
