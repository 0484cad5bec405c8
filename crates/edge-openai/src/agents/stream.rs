//! `GET /agents/sessions/{session}/events`: the events of a session as they happen, over all its turns.

use axum::extract::{Path, State};
use axum::response::Response;
use axum::response::sse::Event;
use edge_core::access::ApiCaller;
use edge_core::api::{ReachedSession, SessionApi};
use edge_core::api_error::ApiError;
use edge_core::client_request::HttpState;
use edge_core::sse;
use edge_core::watch::event_stream::ViewerStream;
use serde_json::Value;
use session_api::{Method, WatchParams};

use super::event_builder::EventBuilder;
use super::history;
use super::session_json::AgentSession;
use super::sessions::parse_id;
use crate::client::{Client, OpenAiError};

/// A stream in its progress.
struct Progress {
    builder: EventBuilder,
    /// The watch; `None` once nothing follows.
    events: Option<ViewerStream>,
    /// Whether the stream ends with the first turn.
    is_of_one_turn: bool,
}

/// Follows a session for `GET /agents/sessions/{session}/events`, from its present state on.
pub(super) async fn follow(
    State(state): State<HttpState>,
    Client(caller): Client,
    Path(session): Path<String>,
) -> Result<Response, OpenAiError> {
    let session = parse_id(&session)?;
    let api = &state.api;
    let session = api.authorize_session(&caller, Method::WatchSession, &session).await?;
    let loaded = api.load_session(&session).await?;
    let now = AgentSession::of_summary(&loaded.summary());
    let mut builder = if now.is_running {
        // What a turn has done so far tells which items are open, and their places.
        history::replay(api, &caller, &session, now.at_start()).await?.0
    } else {
        EventBuilder::new(now, loaded.seq())
    };
    let first = builder.state_event(None);
    Ok(respond(api, &caller, &session, builder, &first, false).await?)
}

/// Follows a session from its start until its first turn has ended.
pub(super) async fn from_start(
    api: &SessionApi,
    caller: &ApiCaller,
    reached: &ReachedSession,
    session: AgentSession,
) -> Result<Response, ApiError> {
    let mut builder = EventBuilder::new(session.at_start(), 0);
    let first = builder.state_event(Some("created"));
    respond(api, caller, reached, builder, &first, true).await
}

async fn respond(
    api: &SessionApi,
    caller: &ApiCaller,
    session: &ReachedSession,
    builder: EventBuilder,
    first: &Value,
    is_of_one_turn: bool,
) -> Result<Response, ApiError> {
    let watch = WatchParams { session_id: session.id().clone(), from_seq: builder.seq() + 1, no_chunks: false };
    let events = Some(api.open_stream(caller, session, &watch).await?);
    let progress = Progress { builder, events, is_of_one_turn };
    Ok(sse::unfold(vec![to_frame(first)], progress, Progress::read))
}

impl Progress {
    /// Reads the next event of the session, and makes its frames; `None` at the end.
    async fn read(mut self) -> Option<(Vec<Event>, Self)> {
        let events = match self.events.as_ref()?.next().await {
            Ok(event) => {
                let had_turn = !self.builder.is_at_rest();
                let events = self.builder.push(&event);
                if self.is_of_one_turn && had_turn && self.builder.is_at_rest() {
                    self.events = None;
                }
                events
            }
            Err(end) => {
                self.events = None;
                let error = end.error()?;
                vec![self.builder.error_event(error.code.as_str(), &error.message)]
            }
        };
        Some((events.iter().map(to_frame).collect(), self))
    }
}

fn to_frame(event: &Value) -> Event {
    Event::default().event(event["type"].as_str().unwrap_or("error")).data(event.to_string())
}
