//! `POST /responses`: a request is a turn of a session, or continues one.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use contract::subject::SessionKey;
use service::connections::Connection;

use super::builder::ResponseBuilder;
use super::ids::ResponseId;
use super::request::ResponseRequest;
use super::{begin, stored, stream};
use crate::access;
use crate::api_error::ApiError;
use crate::client_request::{HttpState, authenticate, read_body};
use crate::clock;
use crate::method::Method;
use crate::openai::errors::to_response;
use crate::request_trace;
use crate::turn::{RequestIdentity, TurnStart, TurnStream};

/// Name of the request in spans and metrics.
const NAME: &str = "openai.responses";

/// Makes a response for `POST /responses`.
pub(super) async fn create(
    State(state): State<HttpState>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let trace = request_trace::of_headers(&parts.headers);
    let answered = request_trace::run(NAME, None, trace, answer(&state, &parts.headers, connection, body)).await;
    answered.unwrap_or_else(|error| to_response(&error))
}

async fn answer(
    state: &HttpState,
    headers: &HeaderMap,
    connection: Arc<Connection>,
    body: Body,
) -> Result<Response, ApiError> {
    let caller = authenticate(state, headers, &connection).await?;
    let api = &state.api;
    api.authorize(&caller, Method::StartSession, None).await?;
    for method in [Method::SendMessage, Method::WatchSession] {
        access::authorize_part(&caller, method)?;
    }
    let body = read_body(state, body, connection).await?;
    let request = ResponseRequest::parse(&body)?;
    let identity = RequestIdentity::new(&caller.name(), headers, &body, clock::now());
    let begun = begin::begin(api, &caller, &request, &identity).await?;
    let key = SessionKey { tenant: caller.tenant.clone(), session: begun.session_id.clone() };
    let commit = match begun.start {
        TurnStart::Running => None,
        TurnStart::Waiting { .. } => api.bus().commit_at(&key, begun.slot).await?,
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
