//! Errors before the first event: the status says what kind they are, and the body is the event `RUN_ERROR`.

use axum::extract::Request;
use axum::response::Response;
use contract::ErrorCode;
use edge_core::api_error::ApiError;
use edge_core::http_error::{respond, to_status};

use super::events::UiEvent;

/// Makes the response to a request that failed.
pub(super) fn to_response(error: &ApiError) -> Response {
    let event = UiEvent::RunError { message: error.message.clone(), code: error.code.clone(), usage: Vec::new() };
    let body = serde_json::to_string(&event).unwrap_or_default();
    // Clients parse the body of this type only.
    respond(error, to_status(&error.code), "application/json", body)
}

pub(super) async fn unknown_path(request: Request) -> Response {
    let path: String = request.uri().path().chars().take(120).collect();
    let message = format!("there is no {} {path}: POST /ag-ui/AGENT runs an agent", request.method());
    to_response(&ApiError::new(ErrorCode::UnknownMethod, message))
}
