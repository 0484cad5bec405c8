//! Errors over HTTP: problem details of RFC 9457, with the stable code.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use contract::{ErrorClass, ErrorCode};
use session_api::Problem;

use crate::api_error::ApiError;

/// Makes the body of an error.
pub fn to_problem(error: &ApiError) -> Problem<'_> {
    let status = to_status(&error.code);
    Problem {
        status: status.as_u16(),
        title: status.canonical_reason().unwrap_or("Error"),
        detail: &error.message,
        code: &error.code,
        retry_after_ms: error.retry_after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
        seq: error.seq,
    }
}

/// Makes the response to a request that failed.
pub fn to_response(error: &ApiError) -> Response {
    let body = serde_json::to_string(&to_problem(error)).unwrap_or_default();
    respond(error, to_status(&error.code), "application/problem+json", body)
}

/// Makes the response to a request that failed, with the body of some protocol.
pub fn respond(error: &ApiError, status: StatusCode, content_type: &'static str, body: String) -> Response {
    let mut response = (status, [(header::CONTENT_TYPE, content_type)], body).into_response();
    add_headers(error, response.headers_mut());
    response
}

/// Adds the headers that say when to try again, and that a credential is needed.
fn add_headers(error: &ApiError, headers: &mut HeaderMap) {
    if let Some(after) = error.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds_up(after)));
    }
    if error.code == ErrorCode::Unauthorized {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"ailoop\""));
    }
}

/// The header counts whole seconds, and a retry must not come too early.
fn seconds_up(after: Duration) -> u64 {
    u64::try_from(after.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX).max(1)
}

/// Returns the status of a stable code.
pub fn to_status(code: &ErrorCode) -> StatusCode {
    match code.class() {
        ErrorClass::Invalid | ErrorClass::Precondition => StatusCode::BAD_REQUEST,
        ErrorClass::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorClass::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorClass::Forbidden => StatusCode::FORBIDDEN,
        ErrorClass::NotFound | ErrorClass::UnknownMethod => StatusCode::NOT_FOUND,
        ErrorClass::Exists | ErrorClass::Conflict => StatusCode::CONFLICT,
        ErrorClass::Gone | ErrorClass::Lost => StatusCode::GONE,
        ErrorClass::Exhausted => StatusCode::TOO_MANY_REQUESTS,
        ErrorClass::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorClass::Upstream => StatusCode::BAD_GATEWAY,
        ErrorClass::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_a_client_has_a_status_of_its_own_kind() {
        let error = ApiError::new(ErrorCode::Overloaded, "later").with_retry_after(Duration::from_millis(1_200));
        let response = to_response(&error);
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        let unauthorized = to_response(&ApiError::new(ErrorCode::Unauthorized, "no"));
        assert!(unauthorized.headers().contains_key(header::WWW_AUTHENTICATE));
        let body = serde_json::to_value(to_problem(&error)).unwrap();
        let wanted = serde_json::json!({
            "status": 429, "title": "Too Many Requests", "detail": "later", "code": "overloaded", "retry_after_ms": 1200
        });
        assert_eq!(body, wanted);
    }
}
