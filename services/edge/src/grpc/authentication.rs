//! Authentication of gRPC requests, before they reach a service.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use edge_core::access::{ApiCaller, Authenticator, CredentialHeader, RequestCredentials};
use edge_core::api_error::ApiError;
use edge_core::client_request::{accept, connection_of};
use service::connections::Connection;

use super::status::to_status;

/// Bytes that an idle connection takes, as measured by `tests/suite/idle_memory.rs`, with a margin.
const CONNECTION_BYTES: usize = 40 << 10;
/// Load balancers ask for the health without a credential.
const HEALTH_PATH: &str = "/grpc.health.v1.Health/";

/// Authenticates each request, and adds the [`ApiCaller`] to it.
pub(crate) async fn authenticate(
    State(authenticator): State<Arc<Authenticator>>,
    mut request: Request,
    next: Next,
) -> Response {
    let connection = connection_of(request.extensions()).cloned();
    if request.uri().path().starts_with(HEALTH_PATH) {
        if let Ok(connection) = connection {
            connection.pace().turn().await;
        }
        return next.run(request).await;
    }
    let caller = match connection {
        Ok(connection) => find_caller(&authenticator, request.headers(), &connection).await,
        Err(error) => Err(error),
    };
    match caller {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => to_status(&error).into_http(),
    }
}

async fn find_caller(
    authenticator: &Authenticator,
    headers: &HeaderMap,
    connection: &Connection,
) -> Result<ApiCaller, ApiError> {
    let credentials =
        RequestCredentials { host: CredentialHeader::Absent, ..RequestCredentials::of_request(headers, connection) };
    let caller = authenticator.authenticate(credentials).await?;
    accept(connection, CONNECTION_BYTES, "grpc")?;
    caller.pace.turn().await;
    Ok(caller)
}
