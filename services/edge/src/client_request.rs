//! What every protocol over HTTP does with a request first: it authenticates it, and reads its body within limits.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use contract::ErrorCode;
use contract::limits::FRAME_BYTES_MAX;
use service::connections::Connection;

use crate::access::{ApiCaller, Authenticator, CredentialHeader, Credentials};
use crate::api_error::ApiError;
use crate::fair_queue::Flow;
use crate::request_body;
use crate::session_api::SessionApi;

/// Bytes that an idle connection takes, as measured by `tests/suite/idle_memory.rs`, with a margin.
pub(crate) const CONNECTION_BYTES: usize = 32 << 10;

/// What the handlers of the HTTP listener share.
#[derive(Debug, Clone)]
pub(crate) struct HttpState {
    pub(crate) api: SessionApi,
    pub(crate) authenticator: Arc<Authenticator>,
}

/// Authenticates a request, and lets its connection stay open.
pub(crate) async fn authenticate(
    state: &HttpState,
    headers: &HeaderMap,
    connection: &Arc<Connection>,
) -> Result<ApiCaller, ApiError> {
    let header = |name: &str| CredentialHeader::from_values(headers.get_all(name));
    let credentials = Credentials {
        authorization: header("authorization"),
        api_key: header("x-api-key"),
        subprotocols: CredentialHeader::Absent,
        origin: header("origin"),
        host: header("host"),
        flow: Flow { address: connection.address(), connection: connection.id() },
    };
    let caller = state.authenticator.authenticate(credentials).await?;
    if state.api.draining().is_cancelled() {
        return Err(SessionApi::draining_error());
    }
    if let Err(refusal) = connection.accept(CONNECTION_BYTES) {
        telemetry::metric::connection_closed("http", "limit");
        return Err(ApiError::new(ErrorCode::Overloaded, refusal.to_string()));
    }
    Ok(caller)
}

/// Reads the body within the limits of the edge.
pub(crate) async fn read_body(state: &HttpState, body: Body, connection: Arc<Connection>) -> Result<Bytes, ApiError> {
    let body = request_body::limit(body, connection, state.api.budget().clone());
    axum::body::to_bytes(body, FRAME_BYTES_MAX).await.map_err(|error| request_body::to_api_error(&error))
}
