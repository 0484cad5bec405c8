//! Responses as the log has them. Nothing else is stored of a response.

use contract::Timestamp;
use contract::commit::Commit;
use contract::limits::SLOTS_PER_PAGE;
use edge_core::access::ApiCaller;
use edge_core::api::{ReachedSession, SessionApi};
use edge_core::api_error::ApiError;
use edge_core::fair_queue::RequestCost;
use edge_core::feed::viewer_event::events_of_commit;
use edge_core::turn::{BegunTurn, TurnFollower, TurnPart, TurnStart};
use serde_json::{Map, Value, json};
use session_api::Method;

use super::builder::ResponseBuilder;
use super::ids::ResponseId;
use super::request::default_fields;
use crate::errors::unknown;

/// A response that was found in the log.
#[derive(Debug)]
pub(super) struct StoredResponse {
    pub(super) session: ReachedSession,
    pub(super) begun: BegunTurn,
    /// Number of its turn, if its commit began it.
    pub(super) turn: Option<u32>,
    /// Fields that do not change, as far as the log has them.
    pub(super) fields: Map<String, Value>,
}

/// A response as far as it is in the log.
#[derive(Debug)]
pub(super) struct ReplayedResponse {
    pub(super) builder: ResponseBuilder,
    /// Number of its turn, as far as the log shows it.
    pub(super) turn: Option<u32>,
    /// The slot of the commit that ended it.
    pub(super) end: Option<u64>,
}

/// Finds a response of a session that the caller reaches.
pub(super) async fn find(api: &SessionApi, caller: &ApiCaller, id: &ResponseId) -> Result<StoredResponse, ApiError> {
    let session = api.authorize_session(caller, Method::GetSession, &id.session).await?;
    let _permit = api.acquire_permit(caller, RequestCost::Read).await?;
    let missing = || unknown("response", &id.to_string());
    let commit = api.commit_at(&session, id.slot).await?.ok_or_else(missing)?;
    let agent = api.summary_of(&session).await?.map(|summary| summary.agent);
    let mut fields = default_fields();
    fields.extend(base_fields(agent.as_deref().unwrap_or_default(), commit.meta.time));
    StoredResponse::begun_by(session, &commit, id, fields).ok_or_else(missing)
}

impl StoredResponse {
    /// Returns the response of this id that a commit of its session has begun.
    pub(super) fn begun_by(
        session: ReachedSession,
        commit: &Commit,
        id: &ResponseId,
        fields: Map<String, Value>,
    ) -> Option<Self> {
        let begun = id.begun(commit)?;
        let turn = commit.events.iter().find_map(|event| {
            let started = event.turn_started()?;
            (begun.start == TurnStart::Running).then_some(started.turn)
        });
        Some(Self { session, begun, turn, fields })
    }
}

/// Builds a response from the log, as far as it is there.
pub(super) async fn replay(
    api: &SessionApi,
    caller: &ApiCaller,
    id: &ResponseId,
    stored: &StoredResponse,
) -> Result<ReplayedResponse, ApiError> {
    let _permit = api.acquire_permit(caller, RequestCost::Scan).await?;
    let commits = api.commits_from(&stored.session, id.slot / SLOTS_PER_PAGE).await?;
    Ok(replay_commits(id, stored, &commits))
}

/// Builds a response from commits of its log.
pub(super) fn replay_commits(id: &ResponseId, stored: &StoredResponse, commits: &[(u64, Commit)]) -> ReplayedResponse {
    let key = stored.session.key();
    let mut builder = ResponseBuilder::new(id.clone(), stored.fields.clone(), None);
    let mut follower = TurnFollower::default();
    let mut turn = stored.turn;
    let mut has_begun = stored.begun.start == TurnStart::Running;
    for (slot, commit) in commits {
        if let TurnStart::Waiting { message } = &stored.begun.start {
            turn = turn.or(commit.turn_of(message));
            has_begun |= turn.is_some();
        }
        if *slot <= id.slot || !has_begun {
            continue;
        }
        let parts = events_of_commit(key, *slot, commit).into_iter().flat_map(|event| follower.push(&event));
        for part in parts {
            if let TurnPart::ReplyEnd { reply, .. } = &part {
                turn = turn.or(Some(reply.turn));
            }
            if builder.push(part) {
                return ReplayedResponse { builder, turn, end: Some(*slot) };
            }
        }
    }
    ReplayedResponse { builder, turn, end: None }
}

/// Returns the fields of a response that follow from its session.
pub(super) fn base_fields(model: &str, created: Timestamp) -> Map<String, Value> {
    let fields = json!({
        "created_at": created.as_millis() / 1_000,
        "completed_at": null,
        "model": model,
    });
    let Value::Object(fields) = fields else { return Map::new() };
    fields
}
