//! Items and turns of a session, read from its log by the same translation that makes its events.

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use edge_core::access::ApiCaller;
use edge_core::api::{ReachedSession, SessionApi};
use edge_core::api_error::ApiError;
use edge_core::client_request::HttpState;
use edge_core::fair_queue::RequestCost;
use edge_core::feed::viewer_event::events_of_commit;
use serde_json::{Value, json};
use session_api::Method;

use super::event_builder::EventBuilder;
use super::session_json::AgentSession;
use super::sessions::parse_id;
use crate::client::{Client, OpenAiError};
use crate::errors::unknown;
use crate::responses::items::PageQuery;

/// Items and turns of a session, in the order of time.
#[derive(Debug, Default)]
pub(super) struct SessionRecord {
    items: Vec<Value>,
    turns: Vec<Value>,
}

impl SessionRecord {
    #[cfg(test)]
    pub(super) fn items(&self) -> &[Value] {
        &self.items
    }

    /// Takes the next event of the protocol.
    pub(super) fn push(&mut self, event: &Value) {
        let change = event["type"].as_str().and_then(|kind| kind.rsplit('.').next());
        let is_new = matches!(change, Some("added" | "created"));
        for (kind, list) in [("item", &mut self.items), ("turn", &mut self.turns)] {
            let Some(found) = event.get(kind) else { continue };
            // What changed is one of the last.
            let known = if is_new { None } else { list.iter_mut().rev().find(|known| known["id"] == found["id"]) };
            match known {
                Some(known) => known.clone_from(found),
                None => list.push(found.clone()),
            }
        }
    }
}

/// Reads the whole log of a session, from its state before the first event.
pub(super) async fn replay(
    api: &SessionApi,
    caller: &ApiCaller,
    session: &ReachedSession,
    start: AgentSession,
) -> Result<(EventBuilder, SessionRecord), ApiError> {
    let _permit = api.acquire_permit(caller, RequestCost::Scan).await?;
    let key = session.key();
    let (mut builder, mut record) = (EventBuilder::new(start, 0), SessionRecord::default());
    for (slot, commit) in api.commits_from(session, 0).await? {
        for event in events_of_commit(key, slot, &commit) {
            for event in builder.push(&event) {
                record.push(&event);
            }
        }
    }
    Ok((builder, record))
}

/// Lists the items for `GET /agents/sessions/{session}/items`.
pub(super) async fn list_items(
    State(state): State<HttpState>,
    Client(caller): Client,
    Path(session): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, OpenAiError> {
    list(&state, &caller, &session, query, |record| Ok(record.items)).await
}

/// Lists the turns for `GET /agents/sessions/{session}/turns`.
pub(super) async fn list_turns(
    State(state): State<HttpState>,
    Client(caller): Client,
    Path(session): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, OpenAiError> {
    list(&state, &caller, &session, query, |record| Ok(record.turns)).await
}

/// Lists the items of a turn for `GET /agents/sessions/{session}/turns/{turn}/items`.
pub(super) async fn list_turn_items(
    State(state): State<HttpState>,
    Client(caller): Client,
    Path((session, turn)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Response, OpenAiError> {
    let of_turn = |mut record: SessionRecord| {
        find_turn(&record, &turn)?;
        record.items.retain(|item| item["turn_id"] == json!(turn));
        Ok(record.items)
    };
    list(&state, &caller, &session, query, of_turn).await
}

/// Shows a turn for `GET /agents/sessions/{session}/turns/{turn}`.
pub(super) async fn show_turn(
    State(state): State<HttpState>,
    Client(caller): Client,
    Path((session, turn)): Path<(String, String)>,
) -> Result<Response, OpenAiError> {
    let record = load(&state, &caller, &session).await?;
    Ok(axum::Json(find_turn(&record, &turn)?.clone()).into_response())
}

async fn list(
    state: &HttpState,
    caller: &ApiCaller,
    session: &str,
    query: Option<String>,
    select: impl FnOnce(SessionRecord) -> Result<Vec<Value>, ApiError>,
) -> Result<Response, OpenAiError> {
    let record = load(state, caller, session).await?;
    let query = PageQuery::parse(query.as_deref().unwrap_or_default())?;
    Ok(axum::Json(query.page(select(record)?)?).into_response())
}

async fn load(state: &HttpState, caller: &ApiCaller, session: &str) -> Result<SessionRecord, ApiError> {
    let session = parse_id(session)?;
    let session = state.api.authorize_session(caller, Method::GetTranscript, &session).await?;
    let summary = state.api.get_session(caller, &session).await?;
    Ok(replay(&state.api, caller, &session, AgentSession::of_summary(&summary).at_start()).await?.1)
}

fn find_turn<'a>(record: &'a SessionRecord, turn: &str) -> Result<&'a Value, ApiError> {
    record.turns.iter().find(|known| known["id"] == json!(turn)).ok_or_else(|| unknown("turn", turn))
}
