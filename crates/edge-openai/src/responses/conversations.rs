//! Conversations: interactive sessions that go on in another one when they have ended.

use axum::extract::{Path, RawQuery, Request, State};
use axum::response::{IntoResponse, Response};
use contract::command::{ControlReason, Start};
use contract::commit::Phase;
use contract::event::Event;
use contract::{CommandId, ErrorCode};
use edge_core::access::ApiCaller;
use edge_core::api::{ReachedSession, SessionApi};
use edge_core::api_error::ApiError;
use edge_core::client_request::{HttpState, read_body};
use edge_core::params::{self, UnvalidatedCommand};
use edge_core::{clock, commands, turn};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use session_api::Method;

use super::input::Input;
use super::{begin, ids, input, items, references};
use crate::client::{Client, OpenAiError};

/// Turns of a session that a list of items reads.
const TURNS_MAX: usize = 1_000;

#[derive(Debug, Default, Deserialize)]
struct NewConversation {
    items: Option<Vec<Value>>,
    metadata: Option<Map<String, Value>>,
}

/// Starts a session that waits for its first message, for `POST /conversations`.
pub(super) async fn create(
    State(state): State<HttpState>,
    Client(caller): Client,
    request: Request,
) -> Result<Response, OpenAiError> {
    state.api.authorize(&caller, Method::StartSession, None).await?;
    let body = read_body(&state, request.into_body(), &caller).await?;
    let new: NewConversation = if body.is_empty() {
        NewConversation::default()
    } else {
        serde_json::from_slice(&body).map_err(ApiError::bad_request_by_parser)?
    };
    let items = Input::Items(new.items.unwrap_or_default());
    let messages = input::to_history(&references::resolve(&state.api, &caller, items).await?)?;
    let conversation = ids::new_conversation(params::generate_id::<CommandId>()?.as_str());
    let session = ids::session_of_conversation(&conversation)?;
    let start = Start { messages, interactive: true, ..Start::default() };
    let command = UnvalidatedCommand::new(session.as_str(), session.as_str(), true, start)?;
    Box::pin(state.api.start(&caller, command)).await?.wait().await?;
    Ok(axum::Json(to_json(&conversation, clock::now().as_millis(), new.metadata.as_ref())).into_response())
}

/// Shows a conversation, for `GET /conversations/{id}`. A `POST` there brings metadata, which are not kept, and gets the
/// same answer.
pub(super) async fn show(
    State(state): State<HttpState>,
    Client(caller): Client,
    Path(id): Path<String>,
) -> Result<Response, OpenAiError> {
    let first = find(&state.api, &caller, Method::GetSession, &id).await?;
    let started = state.api.load_session(&first).await?.summary().started;
    Ok(axum::Json(to_json(&id, started.as_millis(), None)).into_response())
}

/// Ends a conversation, for `DELETE /conversations/{id}`. Its items stay, as OpenAI has it.
pub(super) async fn end(
    State(state): State<HttpState>,
    Client(caller): Client,
    Path(id): Path<String>,
) -> Result<Response, OpenAiError> {
    let first = ids::session_of_conversation(&id)?;
    state.api.authorize_session(&caller, Method::StopSession, &first).await?;
    let last = begin::find_last(&state.api, &caller, &first).await?;
    if last.phase() != Phase::Ended {
        let reason = ControlReason { reason: Some("the conversation was deleted".to_owned()) };
        state.api.perform(&caller, commands::STOP, &last.key().session, "", reason).await?;
    }
    let deleted = json!({"id": id, "object": "conversation.deleted", "deleted": true});
    Ok(axum::Json(deleted).into_response())
}

/// Lists the items of a conversation, for `GET /conversations/{id}/items`.
pub(super) async fn list_items(
    State(state): State<HttpState>,
    Client(caller): Client,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, OpenAiError> {
    let query = items::PageQuery::parse(query.as_deref().unwrap_or_default())?;
    let first = find(&state.api, &caller, Method::GetTranscript, &id).await?;
    let found = load_items(&state.api, &caller, &first).await?;
    let numbered = found.into_iter().enumerate().map(|(index, item)| items::with_id(item, &format!("item_{index}")));
    Ok(axum::Json(query.page(numbered.collect())?).into_response())
}

/// Refuses items without a turn: an agent answers every message.
pub(super) async fn refuse_items(Client(_): Client) -> OpenAiError {
    let message = "items cannot be added alone: POST /responses with `conversation` adds them, and an agent answers";
    ApiError::new(ErrorCode::UnknownMethod, message).into()
}

/// Finds the first session of a conversation that the caller reaches.
async fn find(api: &SessionApi, caller: &ApiCaller, method: Method, id: &str) -> Result<ReachedSession, ApiError> {
    api.authorize_session(caller, method, &ids::session_of_conversation(id)?).await
}

/// Loads the items of the sessions of a conversation, in the order of time. A session that follows the first one may have
/// another agent: without it in reach, its items are left out.
async fn load_items(api: &SessionApi, caller: &ApiCaller, first: &ReachedSession) -> Result<Vec<Value>, ApiError> {
    let start = api.commit_at(first, 0).await?;
    let started = start.iter().flat_map(|commit| &commit.events).find_map(|event| {
        let Event::SessionStarted(started) = event else { return None };
        Some(items::of_messages(&started.messages))
    });
    let mut found = started.unwrap_or_default();
    let mut next = Some(first.clone());
    for generation in 1..=turn::GENERATIONS_MAX {
        if let Some(session) = next.take() {
            let turns = api.read_transcript(caller, &session).await?.turns;
            found.extend(turns.iter().take(TURNS_MAX).flat_map(items::of_turn));
        }
        let successor = turn::successor(first.id(), generation)?;
        if generation == turn::GENERATIONS_MAX || !api.is_session_known(caller, &successor).await? {
            break;
        }
        next = match api.reach(caller, &successor).await {
            Ok(session) => Some(session),
            Err(error) if error.code == ErrorCode::UnknownSession => None,
            Err(error) => return Err(error),
        };
    }
    Ok(found)
}

fn to_json(id: &str, created_ms: u64, metadata: Option<&Map<String, Value>>) -> Value {
    let metadata = metadata.cloned().unwrap_or_default();
    json!({"id": id, "object": "conversation", "created_at": created_ms / 1_000, "metadata": metadata})
}
