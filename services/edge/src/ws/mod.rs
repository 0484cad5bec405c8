//! The HTTP listener: the console on `/`, JSON-RPC over WebSocket on `/ws`, and the protocols of other modules.

mod connection;
mod dispatch;

use std::sync::Arc;

use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::get;
use contract::limits::FRAME_BYTES_MAX;
use edge_core::access::{self, Authenticator, CredentialHeader, RequestCredentials, SUBPROTOCOL};
use edge_core::api::SessionApi;
use edge_core::api_error::ApiError;
use edge_core::client_request::{self, CONNECTION_BYTES, HttpState};
use edge_core::http_error;
use service::connections::Connection;

use crate::console;
use crate::http;

/// Size of the read buffer of tungstenite, which each connection has all the time.
const READ_BUFFER_BYTES: usize = 4 << 10;
/// Bytes that are written at once; the buffer grows for a larger frame.
const WRITE_BUFFER_BYTES: usize = 4 << 10;
const ABOUT: &str = "This is the edge of ailoop, which runs AI agent sessions.\n\
    HTTP with JSON and server-sent events: /v1/sessions, …; the OpenAPI document: /v1/openapi.json.\n\
    JSON-RPC 2.0 over WebSocket: /ws (session.start, session.send, session.watch, …).\n\
    MCP, with the agents as tools: /mcp.\n\
    gRPC with reflection: the next port, unless it was configured otherwise.\n";

/// Builds the routes of the HTTP listener.
pub(crate) fn routes(api: SessionApi, authenticator: Authenticator, is_tls: bool, has_console: bool) -> Router {
    let issuers = authenticator.issuers().clone();
    let state = HttpState { api, authenticator: Arc::new(authenticator) };
    let root = if has_console { console::routes(ABOUT) } else { Router::new().route("/", get(async || ABOUT)) };
    let root = client_request::for_pages(&state, root);
    let own = Router::new().route("/ws", get(upgrade)).with_state(state.clone()).merge(root);
    let own = own.merge(http::routes(state.clone())).merge(edge_openai::routes(state.clone()));
    let own = own
        .merge(edge_mcp::routes(state.clone()))
        .merge(edge_a2a::routes(state.clone(), is_tls))
        .merge(edge_ag_ui::routes(state));
    access::describe_issuers(own, &issuers, is_tls)
}

async fn upgrade(
    State(state): State<HttpState>,
    Extension(connection): Extension<Arc<Connection>>,
    headers: HeaderMap,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let subprotocols = CredentialHeader::from_values(headers.get_all(header::SEC_WEBSOCKET_PROTOCOL));
    let credentials = RequestCredentials { subprotocols, ..RequestCredentials::of_request(&headers, &connection) };
    let caller = match state.authenticator.authenticate(credentials).await {
        Ok(caller) => caller,
        Err(error) => return refuse(http_error::to_status(&error.code), &error),
    };
    let socket = match socket {
        Ok(socket) => socket,
        Err(rejection) => {
            return refuse(StatusCode::UPGRADE_REQUIRED, &ApiError::bad_request(rejection.to_string()));
        }
    };
    if state.api.draining().is_cancelled() {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, &SessionApi::draining_error());
    }
    if let Err(error) = client_request::accept(&connection, CONNECTION_BYTES, "websocket") {
        return refuse(StatusCode::SERVICE_UNAVAILABLE, &error);
    }
    let api = state.api;
    let socket = socket
        // A browser that names protocols wants one of them back. The credential is never echoed.
        .protocols([SUBPROTOCOL])
        .max_message_size(FRAME_BYTES_MAX)
        .max_frame_size(FRAME_BYTES_MAX)
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES);
    socket.on_upgrade(async move |socket| {
        let tasks = api.tasks().clone();
        tasks.spawn("connection", async move {
            connection::serve(socket, api, caller).await;
            // The connection counts until its socket is closed.
            drop(connection);
        });
    })
}

fn refuse(status: StatusCode, error: &ApiError) -> Response {
    let body = serde_json::json!({"code": error.code, "message": error.message});
    http_error::respond(error, status, "application/json", format!("{body}\n"))
}
