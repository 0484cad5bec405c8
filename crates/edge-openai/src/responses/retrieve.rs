//! Operations on a response that has begun: read it, resume its stream, cancel it.

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use contract::ErrorCode;
use edge_core::access;
use edge_core::api_error::ApiError;
use edge_core::client_request::HttpState;
use edge_core::turn::TurnStream;
use serde_json::Value;
use session_api::Method;

use super::builder::ResponseBuilder;
use super::ids::ResponseId;
use super::{items, stored, stream};
use crate::client::{Client, OpenAiError};

/// Reads a response, or takes up its stream, for `GET /responses/{id}`.
pub(super) async fn show(
    State(state): State<HttpState>,
    Client(caller): Client,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, OpenAiError> {
    let (id, query) = (ResponseId::parse(&id)?, Query::parse(query.as_deref().unwrap_or_default())?);
    let stored = stored::find(&state.api, &caller, &id).await?;
    if !query.is_streamed {
        let replayed = stored::replay(&state.api, &caller, &id, &stored).await?;
        return Ok(axum::Json(replayed.builder.response()).into_response());
    }
    access::authorize_part(&caller, Method::WatchSession)?;
    let turn = TurnStream::open(&state.api, &caller, &stored.begun, true).await?;
    let builder = ResponseBuilder::new(id, stored.fields, query.starting_after);
    Ok(stream::respond(builder, turn))
}

/// Cancels the turn of a response that runs, for `POST /responses/{id}/cancel`.
pub(super) async fn cancel(
    State(state): State<HttpState>,
    Client(caller): Client,
    Path(id): Path<String>,
) -> Result<Response, OpenAiError> {
    let id = ResponseId::parse(&id)?;
    let stored = stored::find(&state.api, &caller, &id).await?;
    let mut replayed = stored::replay(&state.api, &caller, &id, &stored).await?;
    if !replayed.builder.is_over() {
        state.api.authorize_session(&caller, Method::CancelTurn, &id.session).await?;
        state.api.cancel_turn(&caller, &id.session, "the response was cancelled".to_owned()).await?;
        replayed = stored::replay(&state.api, &caller, &id, &stored).await?;
    }
    Ok(axum::Json(replayed.builder.response()).into_response())
}

/// Lists the messages of a response, for `GET /responses/{id}/input_items`.
pub(super) async fn list_input_items(
    State(state): State<HttpState>,
    Client(caller): Client,
    Path(id): Path<String>,
) -> Result<Response, OpenAiError> {
    let id = ResponseId::parse(&id)?;
    let session = stored::find(&state.api, &caller, &id).await?.session;
    let commit = state.api.commit_at(&session, id.slot).await?;
    let messages = commit.iter().flat_map(|commit| &commit.events).filter_map(items::of_event);
    let data: Vec<Value> = messages.enumerate().map(|(index, item)| items::with_id(item, &id.message(index))).collect();
    Ok(axum::Json(items::page(&data, false)).into_response())
}

/// Refuses to delete a response: it is a part of the log of its session.
pub(super) async fn refuse_delete(Client(_): Client) -> OpenAiError {
    let message =
        "a response is a part of its session and cannot be deleted alone: `ailoop sessions rm` erases sessions";
    ApiError::new(ErrorCode::UnknownMethod, message).into()
}

/// The query of a request for a response.
#[derive(Debug, Default)]
struct Query {
    is_streamed: bool,
    starting_after: Option<u64>,
}

impl Query {
    fn parse(query: &str) -> Result<Self, ApiError> {
        let mut parsed = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "stream" => parsed.is_streamed = value == "true",
                "starting_after" => {
                    let number = value.parse();
                    parsed.starting_after =
                        Some(number.map_err(|_| ApiError::bad_request("`starting_after` must be a sequence number"))?);
                }
                // `include`, `include_obfuscation` and others change nothing here.
                _ => {}
            }
        }
        Ok(parsed)
    }
}
