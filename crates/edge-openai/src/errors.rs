//! Errors in the form of OpenAI: `{"error": {message, type, param, code}}`. `code` is the stable one.

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use contract::ErrorCode;
use edge_core::api_error::ApiError;
use edge_core::http_error::to_status;
use serde_json::{Value, json};

/// Returns the body of an error.
pub(super) fn to_body(error: &ApiError) -> Value {
    json!({"error": to_error(&error.code, &error.message)})
}

/// Returns an error with all fields that SDKs ask for.
pub(super) fn to_error(code: &ErrorCode, message: &str) -> Value {
    json!({"message": message, "type": to_type(to_status(code)), "param": null, "code": to_code(code)})
}

/// Makes the response to a request that failed.
pub(super) fn to_response(error: &ApiError) -> Response {
    let status = to_status(&error.code);
    let mut response =
        (status, [(header::CONTENT_TYPE, "application/json")], to_body(error).to_string()).into_response();
    let headers = response.headers_mut();
    if let Some(after) = error.retry_after {
        headers.insert("retry-after-ms", HeaderValue::from(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)));
    } else {
        // SDKs would repeat a conflict, and every server error, in vain.
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    response
}

/// Error for an id that names nothing here.
pub(super) fn unknown(kind: &str, id: &str) -> ApiError {
    let id: String = id.chars().take(120).collect();
    ApiError::new(ErrorCode::UnknownSession, format!("there is no {kind} {id:?}"))
}

/// SDKs know this code by name.
fn to_code(code: &ErrorCode) -> &str {
    if *code == ErrorCode::UnknownAgent { "model_not_found" } else { code.as_str() }
}

fn to_type(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => "authentication_error",
        StatusCode::FORBIDDEN => "permission_error",
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_client_error() => "invalid_request_error",
        _ => "server_error",
    }
}

pub(super) async fn unknown_path(request: Request) -> Response {
    let path: String = request.uri().path().chars().take(120).collect();
    let message = format!("there is no {} {path}", request.method());
    to_response(&ApiError::new(ErrorCode::UnknownMethod, message))
}
