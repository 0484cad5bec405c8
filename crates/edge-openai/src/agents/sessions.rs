//! Sessions: the list of them, one of them, and its end.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use contract::command::ControlReason;
use contract::commit::{Phase, SessionSummary};
use contract::{AgentId, SessionId};
use edge_core::access::ApiCaller;
use edge_core::api::{ReachedSession, SessionApi};
use edge_core::api_error::ApiError;
use edge_core::client_request::HttpState;
use edge_core::{commands, params};
use serde_json::{Value, json};
use session_api::{ListCursor, ListSessionsParams, Method};

use super::catalogue;
use super::session_json::AgentSession;
use crate::client::{Client, OpenAiError};
use crate::errors::unknown;
use crate::responses::items::{self, PageQuery};

/// Parses the id of a session. One that no session can have is as unknown as one that none has.
pub(super) fn parse_id(text: &str) -> Result<SessionId, ApiError> {
    params::parse_session_id(text).map_err(|_| unknown("session", text))
}

/// Lists sessions for `GET /agents/sessions`, the newest first if nothing else is asked for.
pub(super) async fn list(
    State(state): State<HttpState>,
    Client(caller): Client,
    RawQuery(query): RawQuery,
) -> Result<Response, OpenAiError> {
    state.api.authorize(&caller, Method::ListSessions, None).await?;
    let query = query.as_deref().unwrap_or_default();
    let (page, has_more) = find_page(&state.api, &caller, query).await?;
    let data: Vec<Value> = page.iter().map(|summary| AgentSession::of_summary(summary).to_json()).collect();
    Ok(axum::Json(items::page(&data, has_more)).into_response())
}

async fn find_page(api: &SessionApi, caller: &ApiCaller, query: &str) -> Result<(Vec<SessionSummary>, bool), ApiError> {
    let PageQuery { after, limit, is_ascending } = PageQuery::parse(query)?;
    let mut agent: Option<AgentId> = None;
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        if name == "agent_id" {
            agent = Some(catalogue::find(api, caller, &value).await?.id);
        } else if name.starts_with("metadata") {
            return Err(ApiError::bad_request("`metadata` selects no sessions: it is not stored"));
        }
    }
    let after = match after {
        Some(after) => {
            let session = parse_id(&after)?;
            let session = api.reach(caller, &session).await?;
            let summary = api.summary_of(&session).await?;
            let summary = summary.ok_or_else(|| unknown("session", &after))?;
            Some(ListCursor { started: summary.started, session: summary.session_id })
        }
        None => None,
    };
    if !is_ascending {
        let params = ListSessionsParams { limit, cursor: after, agent, ..ListSessionsParams::default() };
        let page = api.list_sessions(caller, &params).await?;
        return Ok((page.sessions, page.next_cursor.is_some()));
    }
    let after = after.as_ref().map(ListCursor::position);
    let (mut all, _) = api.list_all_sessions(caller).await?;
    all.retain(|summary| {
        ReachedSession::of_summary(caller, summary).is_some()
            && agent.as_ref().is_none_or(|agent| summary.agent == agent.as_str())
            && after.as_ref().is_none_or(|after| summary.place() < *after)
    });
    all.sort_by_cached_key(|summary| std::cmp::Reverse(summary.place()));
    let has_more = all.len() > limit;
    all.truncate(limit);
    Ok((all.into_iter().map(Arc::unwrap_or_clone).collect(), has_more))
}

/// Shows a session for `GET /agents/sessions/{session}`.
pub(super) async fn show(
    State(state): State<HttpState>,
    Client(caller): Client,
    Path(session): Path<String>,
) -> Result<Response, OpenAiError> {
    let session = parse_id(&session)?;
    let session = state.api.authorize_session(&caller, Method::GetSession, &session).await?;
    let summary = state.api.get_session(&caller, &session).await?;
    Ok(axum::Json(AgentSession::of_summary(&summary).to_json()).into_response())
}

/// Stops a session for `DELETE /agents/sessions/{session}`. Its log stays.
pub(super) async fn end(
    State(state): State<HttpState>,
    Client(caller): Client,
    Path(session): Path<String>,
) -> Result<Response, OpenAiError> {
    let session = parse_id(&session)?;
    let reached = state.api.authorize_session(&caller, Method::StopSession, &session).await?;
    if state.api.get_session(&caller, &reached).await?.phase != Phase::Ended {
        let reason = ControlReason { reason: Some("the session was deleted".to_owned()) };
        state.api.perform(&caller, commands::STOP, &session, "", reason).await?;
    }
    let deleted = json!({"id": session, "object": "agent.session.deleted", "deleted": true});
    Ok(axum::Json(deleted).into_response())
}
