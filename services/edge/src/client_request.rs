//! First steps of every protocol over HTTP: they authenticate a request, and read its body within limits.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::Extensions;
use axum::http::request::Parts;
use contract::ErrorCode;
use contract::limits::FRAME_BYTES_MAX;
use service::connections::Connection;

use crate::access::{ApiCaller, Authenticator, Credentials};
use crate::api::SessionApi;
use crate::api_error::ApiError;
use crate::request_body;

/// Bytes that an idle connection takes, as measured by `tests/suite/idle_memory.rs`, with a margin.
pub(crate) const CONNECTION_BYTES: usize = 32 << 10;

/// State that the handlers of the HTTP listener share.
#[derive(Debug, Clone)]
pub(crate) struct HttpState {
    pub(crate) api: SessionApi,
    pub(crate) authenticator: Arc<Authenticator>,
}

/// Authenticates a request, and lets its connection stay open.
pub(crate) async fn authenticate(state: &HttpState, parts: &Parts) -> Result<ApiCaller, ApiError> {
    let connection = connection_of(&parts.extensions)?;
    let caller = state.authenticator.authenticate(Credentials::of_request(&parts.headers, connection)).await?;
    if state.api.draining().is_cancelled() {
        return Err(SessionApi::draining_error());
    }
    accept(connection, CONNECTION_BYTES, "http")?;
    caller.pace.turn().await;
    Ok(caller)
}

/// Returns the connection on which a request came.
pub(crate) fn connection_of(extensions: &Extensions) -> Result<&Arc<Connection>, ApiError> {
    let connection = extensions.get::<Arc<Connection>>();
    connection.ok_or_else(|| ApiError::new(ErrorCode::Internal, "the request has no connection"))
}

/// Lets the connection of an authenticated client stay open, if there is room for it. `protocol` is for the metrics.
pub(crate) fn accept(connection: &Connection, bytes: usize, protocol: &'static str) -> Result<(), ApiError> {
    connection.accept(bytes).map_err(|refusal| {
        telemetry::metric::connection_closed(protocol, "limit");
        ApiError::new(ErrorCode::Overloaded, refusal.to_string())
    })
}

/// Reads the body within the limits of the edge.
pub(crate) async fn read_body(state: &HttpState, body: Body, caller: &ApiCaller) -> Result<Bytes, ApiError> {
    let body = request_body::limit(body, caller.pace.clone(), state.api.budget().clone(), axum::Error::new);
    axum::body::to_bytes(body, FRAME_BYTES_MAX).await.map_err(|error| request_body::to_api_error(&error))
}
