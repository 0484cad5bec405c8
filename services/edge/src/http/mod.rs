//! The session API over HTTP: JSON requests and server-sent events below `/v1`, with an `OpenAPI` document.

mod events;
mod request;

use std::sync::LazyLock;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{Method as HttpMethod, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, get, on};
use contract::{ErrorCode, Json};
use edge_core::api::SessionApi;
use edge_core::api_error::ApiError;
use edge_core::client_request::{self, HttpState};
use edge_core::http_error::to_response;
use edge_core::invoke;
use session_api::{HttpRoute, HttpVerb, Method, ROUTES, openapi};

use request::ClientRequest;

/// Builds the routes below `/v1`.
pub(crate) fn routes(state: HttpState) -> Router {
    let mut router =
        client_request::for_pages(&state, Router::new().route("/v1/openapi.json", get(async || openapi_response())));
    for route in ROUTES.iter() {
        let filter = match route.verb {
            HttpVerb::Get => MethodFilter::GET,
            HttpVerb::Post => MethodFilter::POST,
            HttpVerb::Delete => MethodFilter::DELETE,
        };
        let handler = async move |State(state): State<HttpState>, request: Request| handle(state, route, request).await;
        router = router.route(route.path, on(filter, handler));
    }
    router
        .route("/v1/{*path}", axum::routing::any(unknown_path))
        .method_not_allowed_fallback(wrong_verb)
        .with_state(state)
}

async fn handle(state: HttpState, route: &'static HttpRoute, request: Request) -> Response {
    match ClientRequest::read(&state, route, request).await {
        Ok(request) if route.method.is_stream() => events::respond(&state.api, request).await,
        Ok(request) => respond(&state.api, route, request).await,
        Err(error) => to_response(&error),
    }
}

async fn respond(api: &SessionApi, route: &HttpRoute, request: ClientRequest) -> Response {
    let ClientRequest { caller, params, trace } = request;
    match invoke::call(api, &caller, route.method, params, trace).await {
        Ok(result) => to_success(route, &result),
        Err(error) => to_response(&error),
    }
}

/// A command that is stored and not handled yet was accepted, and a new session was created.
fn to_success(route: &HttpRoute, result: &Json) -> Response {
    let json = [(header::CONTENT_TYPE, "application/json")];
    if !route.method.is_command() {
        return (json, result.get().to_owned()).into_response();
    }
    let reply: CommandOutcome = serde_json::from_str(result.get()).unwrap_or_default();
    if !reply.done {
        return (StatusCode::ACCEPTED, json, result.get().to_owned()).into_response();
    }
    if route.method == Method::StartSession {
        let location = [(header::LOCATION, format!("/v1/sessions/{}", reply.session_id))];
        return (StatusCode::CREATED, json, location, result.get().to_owned()).into_response();
    }
    (json, result.get().to_owned()).into_response()
}

#[derive(Default, serde::Deserialize)]
struct CommandOutcome {
    session_id: String,
    done: bool,
}

/// The document, made once: anybody may ask for it.
static OPENAPI: LazyLock<Bytes> = LazyLock::new(|| openapi::document().to_string().into());

fn openapi_response() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI.clone()).into_response()
}

async fn unknown_path(method: HttpMethod, request: Request) -> Response {
    let path: String = request.uri().path().chars().take(120).collect();
    let message = format!("there is no {method} {path}: see /v1/openapi.json");
    to_response(&ApiError::new(ErrorCode::UnknownMethod, message))
}

async fn wrong_verb(method: HttpMethod, request: Request) -> Response {
    let path: String = request.uri().path().chars().take(120).collect();
    let message = format!("{path} does not take {method}: see /v1/openapi.json");
    let mut response = to_response(&ApiError::new(ErrorCode::UnknownMethod, message));
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use super::*;

    #[tokio::test]
    async fn document_of_the_api_is_written_once() {
        let read = async || axum::body::to_bytes(openapi_response().into_body(), usize::MAX).await.unwrap();
        let (one, other) = (read().await, read().await);
        assert!(!one.is_empty() && one.as_ptr() == other.as_ptr());
    }
}
