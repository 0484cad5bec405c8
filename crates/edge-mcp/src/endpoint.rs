//! The HTTP part in front of the MCP library: authentication, scopes, and the limits of the body.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::post};
use contract::limits::FRAME_BYTES_MAX;
use contract::{ErrorCode, Json};
use edge_core::access::{self, RequestCredentials};
use edge_core::api_error::ApiError;
use edge_core::client_request::{HttpState, authenticate, connection_of, read_body};
use edge_core::{http_error, params, request_trace};
use http_body_util::Full;
use rmcp::model::ClientCapabilities;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde_json::json;
use session_api::{Method, Scope};

use super::catalogue::methods_of;
use super::elicitation::{Dismissals, can_fill_forms};
use super::handler::McpHandler;
use super::late_response;
use super::session_tool::SessionTool;
use super::sessions::ClientSessions;

/// State that the requests of this endpoint share.
#[derive(Debug, Clone)]
struct McpState {
    http: HttpState,
    dismissals: Dismissals,
}

/// Fields of a message that must be known before the library reads it.
#[derive(Debug, Default, Deserialize)]
struct MessageOutline<'a> {
    #[serde(default)]
    id: Option<Json>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: ParamsOutline<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct ParamsOutline<'a> {
    /// Name of a tool.
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    /// Capabilities in the request `initialize`.
    #[serde(default)]
    capabilities: Option<ClientCapabilities>,
}

/// A request that does not reach the library.
struct HttpRefusal {
    status: StatusCode,
    id: Option<Json>,
    error: ApiError,
    /// Methods that the caller would need a permission for.
    methods: &'static [Method],
}

/// Builds the route `/mcp`, also with a slash at its end.
pub fn routes(http: HttpState) -> Router {
    let state = McpState { http, dismissals: Dismissals::default() };
    let endpoint = post(answer).fallback(only_post);
    Router::new().route("/mcp", endpoint.clone()).route("/mcp/", endpoint).with_state(state)
}

/// Neither era needs the other verbs: a client follows a call on the stream of its request, and sessions of the transport
/// keep nothing that could be deleted.
async fn only_post() -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "POST")], "/mcp takes POST only\n").into_response()
}

async fn answer(State(state): State<McpState>, request: Request) -> Result<Response, HttpRefusal> {
    let McpState { http, dismissals } = state;
    let (parts, body) = request.into_parts();
    let credentials = RequestCredentials::of_request(&parts.headers, connection_of(&parts.extensions)?);
    let caller = match authenticate(&http, &parts).await {
        Ok(caller) => caller,
        // The protocol has a status of its own for web pages that may not connect.
        Err(error) if http.authenticator.check_page(&credentials).is_err() => {
            return Err(HttpRefusal { status: StatusCode::FORBIDDEN, ..HttpRefusal::from(error) });
        }
        Err(error) => return Err(error.into()),
    };
    let body = read_body(&http, body, &caller).await?;
    let text = std::str::from_utf8(&body).map_err(|error| ApiError::bad_request(format!("not UTF-8: {error}")))?;
    params::check_size("the body", text)?;
    // What has another shape is refused by the library.
    let outline: MessageOutline<'_> = serde_json::from_str(text).unwrap_or_default();
    if outline.method.as_deref() == Some("tools/call")
        && let Some(name) = &outline.params.name
    {
        let methods = methods_of(name);
        for method in methods {
            if let Err(error) = access::authorize_part(&caller, *method) {
                return Err(HttpRefusal { id: outline.id, methods, ..HttpRefusal::from(error) });
            }
        }
        if SessionTool::from_name(name).is_some_and(|tool| !tool.is_offered(&caller)) {
            let message = format!("{name} needs a credential that names the scope `{}`", Scope::Approve);
            let error = ApiError::new(ErrorCode::Forbidden, message);
            return Err(HttpRefusal { id: outline.id, methods, ..HttpRefusal::from(error) });
        }
    }
    let has_forms = outline.params.capabilities.as_ref().is_some_and(can_fill_forms);
    let trace = request_trace::of_headers(&parts.headers);
    let handler = McpHandler::new(http.api, caller, trace, dismissals);
    let sessions = Arc::new(ClientSessions::new(handler.clone(), has_forms));
    let service = StreamableHttpService::new(move || Ok(handler.clone()), sessions, library_config());
    let request = Request::from_parts(parts, Full::new(body));
    let response = async move { service.handle(request).await.map(Body::new).into_response() };
    Ok(late_response::begin_in_time(response).await)
}

/// The edge has checked hosts and origins by its own rules, and limited the body.
fn library_config() -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_json_response(true)
        .with_sse_retry(None)
        .with_max_request_body_bytes(FRAME_BYTES_MAX)
}

impl From<ApiError> for HttpRefusal {
    fn from(error: ApiError) -> Self {
        Self { status: http_error::to_status(&error.code), id: None, error, methods: &[] }
    }
}

impl IntoResponse for HttpRefusal {
    fn into_response(self) -> Response {
        let Self { status, id, error, methods } = self;
        let body = json!({
            "jsonrpc": "2.0", "id": id,
            "error": {"code": error.json_rpc_code(), "message": error.message, "data": {"code": error.code}},
        });
        let mut response = http_error::respond(&error, status, "application/json", body.to_string());
        if error.code == ErrorCode::Forbidden
            && let Ok(challenge) = HeaderValue::try_from(insufficient_scope(methods))
        {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

/// Names the scopes of the methods, as RFC 6750 has it.
fn insufficient_scope(methods: &[Method]) -> String {
    let mut scopes: Vec<&str> = methods.iter().map(|method| method.scope().as_str()).collect();
    scopes.sort_unstable();
    scopes.dedup();
    format!("Bearer error=\"insufficient_scope\", scope=\"{}\"", scopes.join(" "))
}
