//! First steps of every protocol over HTTP: they authenticate a request, and read its body within limits.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::Extensions;
use axum::http::request::Parts;
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::{Extension, Router};
use contract::ErrorCode;
use contract::limits::FRAME_BYTES_MAX;
use service::connections::Connection;

use crate::access::{ApiCaller, Authenticator, RequestCredentials};
use crate::api::SessionApi;
use crate::api_error::ApiError;
use crate::http_error::to_response;
use crate::request_body;

/// Bytes that an idle connection takes, as measured by `tests/suite/idle_memory.rs`, with a margin.
pub const CONNECTION_BYTES: usize = 32 << 10;

/// State that the handlers of the HTTP listener share.
#[derive(Debug, Clone)]
pub struct HttpState {
    /// Methods of the session API.
    pub api: SessionApi,
    /// Check of the credentials of a client.
    pub authenticator: Arc<Authenticator>,
}

/// Authenticates a request, and lets its connection stay open.
pub async fn authenticate(state: &HttpState, parts: &Parts) -> Result<ApiCaller, ApiError> {
    let connection = connection_of(&parts.extensions)?;
    let caller = state.authenticator.authenticate(RequestCredentials::of_request(&parts.headers, connection)).await?;
    if state.api.draining().is_cancelled() {
        return Err(SessionApi::draining_error());
    }
    accept(connection, CONNECTION_BYTES, "http")?;
    caller.pace.turn().await;
    Ok(caller)
}

/// Returns the connection on which a request came.
pub fn connection_of(extensions: &Extensions) -> Result<&Arc<Connection>, ApiError> {
    let connection = extensions.get::<Arc<Connection>>();
    connection.ok_or_else(|| ApiError::new(ErrorCode::Internal, "the request has no connection"))
}

/// Lets the connection of an authenticated client stay open, if there is room for it. `protocol` is for the metrics.
pub fn accept(connection: &Connection, bytes: usize, protocol: &'static str) -> Result<(), ApiError> {
    connection.accept(bytes).map_err(|refusal| {
        telemetry::metric::connection_closed(protocol, "limit");
        ApiError::new(ErrorCode::Overloaded, refusal.to_string())
    })
}

/// Reads the body within the limits of the edge.
pub async fn read_body(state: &HttpState, body: Body, caller: &ApiCaller) -> Result<Bytes, ApiError> {
    let body = request_body::limit(body, caller.pace.clone(), state.api.budget().clone(), axum::Error::new);
    axum::body::to_bytes(body, FRAME_BYTES_MAX).await.map_err(|error| request_body::to_api_error(&error))
}

/// Refuses the documents of a router, which need no credential, to web pages that may not use the edge.
pub fn for_pages<S: Clone + Send + Sync + 'static>(state: &HttpState, documents: Router<S>) -> Router<S> {
    documents.route_layer(middleware::from_fn_with_state(state.authenticator.clone(), check_page))
}

async fn check_page(
    State(authenticator): State<Arc<Authenticator>>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request,
    next: Next,
) -> Response {
    match authenticator.check_page(&RequestCredentials::of_request(request.headers(), &connection)) {
        Ok(()) => {
            connection.pace().turn().await;
            next.run(request).await
        }
        Err(error) => to_response(&error),
    }
}
