//! Metadata of the edge as a protected resource (RFC 9728): it says where clients get a token.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use super::issuers::Issuers;

/// Path of the document, which needs no credential.
const PATH: &str = "/.well-known/oauth-protected-resource";
/// Bytes of a host that is repeated.
const HOST_BYTES_MAX: usize = 255;

/// Inputs of the metadata document.
#[derive(Debug)]
struct Resource {
    issuers: Issuers,
    is_tls: bool,
}

/// Adds the document to a router, and its URL to each answer 401. Without issuers it changes nothing.
pub fn describe_issuers(router: Router, issuers: &Issuers, is_tls: bool) -> Router {
    if issuers.is_empty() {
        return router;
    }
    let resource = Arc::new(Resource { issuers: issuers.clone(), is_tls });
    let document = Router::new().route(PATH, get(respond)).with_state(resource.clone());
    router.merge(document).layer(axum::middleware::from_fn_with_state(resource, add_challenge))
}

async fn respond(State(resource): State<Arc<Resource>>, request: Request) -> Response {
    let Some(base) = resource.base(&request) else {
        return (StatusCode::BAD_REQUEST, "the header `Host` is missing or malformed\n").into_response();
    };
    let (issuers, scopes) = resource.issuers.metadata();
    let document = json!({
        "resource": base,
        "authorization_servers": issuers,
        "scopes_supported": scopes,
        "bearer_methods_supported": ["header"],
    });
    ([(header::CONTENT_TYPE, "application/json")], document.to_string()).into_response()
}

async fn add_challenge(State(resource): State<Arc<Resource>>, request: Request, next: Next) -> Response {
    let base = resource.base(&request);
    let mut response = next.run(request).await;
    if response.status() == StatusCode::UNAUTHORIZED
        && let Some(base) = base
        && let Ok(challenge) = HeaderValue::try_from(format!("Bearer resource_metadata=\"{base}{PATH}\""))
    {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

/// Returns the URL by which the client addresses the edge. A proxy may end TLS in front of it, so that only this machine
/// uses http.
pub fn base_url(headers: &HeaderMap, is_tls: bool) -> Option<String> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte);
    if host.is_empty() || host.len() > HOST_BYTES_MAX || !host.bytes().all(is_host) {
        return None;
    }
    let scheme = if !is_tls && super::authentication::is_local(host) { "http" } else { "https" };
    Some(format!("{scheme}://{host}"))
}

impl Resource {
    fn base(&self, request: &Request) -> Option<String> {
        base_url(request.headers(), self.is_tls)
    }
}
