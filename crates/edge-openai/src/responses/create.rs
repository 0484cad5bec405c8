//! `POST /responses`: a request is a turn of a session, or continues one.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use edge_core::api::SessionApi;
use edge_core::api_error::ApiError;
use edge_core::client_request::HttpState;
use edge_core::clock;
use edge_core::turn::{TurnStart, TurnStream};

use super::builder::ResponseBuilder;
use super::ids::ResponseId;
use super::request::ResponseRequest;
use super::{begin, stored, stream};
use crate::client::{OpenAiError, TurnCall, run_turn_request};

/// Name of the request in spans and metrics.
const NAME: &str = "openai.responses";

/// Makes a response for `POST /responses`.
pub(super) async fn create(State(state): State<HttpState>, request: Request) -> Result<Response, OpenAiError> {
    run_turn_request(NAME, &state, request, |call| answer(&state.api, call)).await
}

async fn answer(api: &SessionApi, call: TurnCall) -> Result<Response, ApiError> {
    let TurnCall { caller, body, identity, .. } = call;
    let request = ResponseRequest::parse(&body)?;
    let begun = begin::begin(api, &caller, &request, &identity).await?;
    let commit = match begun.start {
        TurnStart::Running => None,
        TurnStart::Waiting { .. } => {
            let session = api.reach(&caller, &begun.session_id).await?;
            api.commit_at(&session, begun.slot).await?
        }
    };
    let id = ResponseId::of(&begun, commit.as_ref());
    let mut fields = ResponseRequest::echoed(&body);
    fields.extend(stored::base_fields(request.model.as_deref().unwrap_or_default(), clock::now()));
    let builder = ResponseBuilder::new(id, fields, None);
    let is_streamed = request.stream == Some(true);
    if request.is_background() && !is_streamed {
        return Ok(axum::Json(builder.response()).into_response());
    }
    let turn = TurnStream::open(api, &caller, &begun, is_streamed).await?;
    if is_streamed {
        return Ok(stream::respond(builder, turn));
    }
    collect(builder, turn).await
}

/// Waits for the end of a response.
async fn collect(mut builder: ResponseBuilder, mut turn: TurnStream) -> Result<Response, ApiError> {
    loop {
        let part = turn.next().await?;
        if builder.push(part) {
            return Ok(axum::Json(builder.response()).into_response());
        }
        builder.take_ready();
    }
}
