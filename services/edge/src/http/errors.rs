//! Errors over HTTP: problem details of RFC 9457, with the stable code.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use contract::ErrorCode;
use serde::Serialize;

use crate::api_error::ApiError;

/// The body of an error.
#[derive(Debug, Serialize)]
pub(super) struct Problem<'a> {
    status: u16,
    title: &'static str,
    /// Description of the failure, and what to do.
    detail: &'a str,
    /// Stable code for programs.
    code: &'a ErrorCode,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// The last `seq` of the session, for errors about a cursor.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
}

impl<'a> Problem<'a> {
    pub(super) fn new(error: &'a ApiError) -> Self {
        let status = to_status(&error.code);
        Self {
            status: status.as_u16(),
            title: status.canonical_reason().unwrap_or("Error"),
            detail: &error.message,
            code: &error.code,
            retry_after_ms: error.retry_after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
            seq: error.seq,
        }
    }
}

/// Makes the response to a request that failed.
pub(super) fn to_response(error: &ApiError) -> Response {
    let body = serde_json::to_string(&Problem::new(error)).unwrap_or_default();
    let kind = [(header::CONTENT_TYPE, "application/problem+json")];
    let mut response = (to_status(&error.code), kind, body).into_response();
    add_headers(error, response.headers_mut());
    response
}

/// Adds the headers that say when to try again, and that a credential is needed.
pub(crate) fn add_headers(error: &ApiError, headers: &mut HeaderMap) {
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
pub(crate) fn to_status(code: &ErrorCode) -> StatusCode {
    match code {
        ErrorCode::BadRequest
        | ErrorCode::EmptyMessage
        | ErrorCode::InvalidArguments
        | ErrorCode::ApprovalRequired
        | ErrorCode::ModelBadRequest
        | ErrorCode::ModelContextLength => StatusCode::BAD_REQUEST,
        ErrorCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::UnknownAgent
        | ErrorCode::UnknownBudget
        | ErrorCode::UnknownCall
        | ErrorCode::UnknownDeadLetter
        | ErrorCode::UnknownFeature
        | ErrorCode::UnknownMail
        | ErrorCode::UnknownMethod
        | ErrorCode::UnknownModel
        | ErrorCode::UnknownSession
        | ErrorCode::UnknownTool => StatusCode::NOT_FOUND,
        ErrorCode::SessionExists
        | ErrorCode::SessionEnded
        | ErrorCode::NotNow
        | ErrorCode::GateClosed
        | ErrorCode::StaleCommand
        | ErrorCode::ApprovalNeeded => StatusCode::CONFLICT,
        ErrorCode::Resync | ErrorCode::HistoryLost => StatusCode::GONE,
        ErrorCode::Overloaded
        | ErrorCode::TooManyWaiting
        | ErrorCode::SlowClient
        | ErrorCode::ModelRateLimited
        | ErrorCode::ModelQuota => StatusCode::TOO_MANY_REQUESTS,
        ErrorCode::Unavailable
        | ErrorCode::SessionMoved
        | ErrorCode::NatsUnreachable
        | ErrorCode::Draining
        | ErrorCode::ModelOverloaded
        | ErrorCode::ModelUnreachable => StatusCode::SERVICE_UNAVAILABLE,
        ErrorCode::ModelAuth
        | ErrorCode::ModelRefused
        | ErrorCode::ModelHung
        | ErrorCode::ModelGarbage
        | ErrorCode::ModelTruncated
        | ErrorCode::ModelEmptyReply => StatusCode::BAD_GATEWAY,
        // Codes that no request of a client has, and codes of newer services.
        ErrorCode::NatsTooOld
        | ErrorCode::NatsMissing
        | ErrorCode::NatsNoJetStream
        | ErrorCode::StreamDrift
        | ErrorCode::PortInUse
        | ErrorCode::BadConfig
        | ErrorCode::NoToolAvailable
        | ErrorCode::DelegationRefused
        | ErrorCode::ToolError
        | ErrorCode::OutputTooLarge
        | ErrorCode::Poison
        | ErrorCode::TooManyDeliveries
        | ErrorCode::Internal
        | ErrorCode::Other(_) => StatusCode::INTERNAL_SERVER_ERROR,
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
        let body = serde_json::to_value(Problem::new(&error)).unwrap();
        let wanted = serde_json::json!({
            "status": 429, "title": "Too Many Requests", "detail": "later", "code": "overloaded", "retry_after_ms": 1200
        });
        assert_eq!(body, wanted);
    }
}
