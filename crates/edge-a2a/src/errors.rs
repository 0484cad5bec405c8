//! Errors of A2A: a code of JSON-RPC, a status of HTTP, and `google.rpc.ErrorInfo` with the stable code.

use axum::http::StatusCode;
use contract::ErrorCode;
use edge_core::api_error::ApiError;
use edge_core::http_error::to_status;
use serde_json::{Value, json};

use super::task_id::TaskId;

/// Domain of the reasons that the specification defines.
const SPECIFIED: &str = "a2a-protocol.org";
/// Domain of the reasons that are stable codes of ailoop.
const OWN: &str = "ailoop";

/// Kind of an error, as A2A reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum A2aErrorKind {
    Parse,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    TaskNotFound,
    TaskNotCancelable,
    PushNotificationNotSupported,
    UnsupportedOperation,
    ContentTypeNotSupported,
    VersionNotSupported,
    /// No error of the specification: the stable code says which.
    Other,
}

impl A2aErrorKind {
    /// Returns the code of the JSON-RPC error, and the reason that the specification has for it.
    const fn code_and_reason(self) -> (i32, Option<&'static str>) {
        match self {
            Self::Parse => (-32_700, Some("PARSE_ERROR")),
            Self::InvalidRequest => (-32_600, Some("INVALID_REQUEST")),
            Self::MethodNotFound => (-32_601, Some("METHOD_NOT_FOUND")),
            Self::InvalidParams => (-32_602, Some("INVALID_PARAMS")),
            Self::Internal => (-32_603, Some("INTERNAL_ERROR")),
            Self::TaskNotFound => (-32_001, Some("TASK_NOT_FOUND")),
            Self::TaskNotCancelable => (-32_002, Some("TASK_NOT_CANCELABLE")),
            Self::PushNotificationNotSupported => (-32_003, Some("PUSH_NOTIFICATION_NOT_SUPPORTED")),
            Self::UnsupportedOperation => (-32_004, Some("UNSUPPORTED_OPERATION")),
            Self::ContentTypeNotSupported => (-32_005, Some("CONTENT_TYPE_NOT_SUPPORTED")),
            Self::VersionNotSupported => (-32_009, Some("VERSION_NOT_SUPPORTED")),
            Self::Other => (-32_000, None),
        }
    }
}

/// The error of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct A2aError {
    pub(super) kind: A2aErrorKind,
    pub(super) error: ApiError,
}

impl A2aError {
    pub(super) fn new(kind: A2aErrorKind, code: ErrorCode, message: impl Into<String>) -> Self {
        Self { kind, error: ApiError::new(code, message) }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(A2aErrorKind::InvalidParams, ErrorCode::BadRequest, message)
    }

    pub(super) fn unsupported(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(A2aErrorKind::UnsupportedOperation, code, message)
    }

    pub(super) fn task_not_found(id: &TaskId) -> Self {
        Self::new(A2aErrorKind::TaskNotFound, ErrorCode::UnknownSession, format!("there is no task {id}"))
    }

    /// Returns the error of an operation on a task, whose session may be out of the caller's reach.
    pub(super) fn of_task(error: ApiError, id: &TaskId) -> Self {
        if error.code == ErrorCode::UnknownSession { Self::task_not_found(id) } else { error.into() }
    }

    /// Returns the code of the JSON-RPC error.
    pub(super) const fn json_rpc_code(&self) -> i32 {
        self.kind.code_and_reason().0
    }

    /// Returns the status of HTTP and its name in `google.rpc.Code`.
    pub(super) fn status(&self) -> (StatusCode, &'static str) {
        let status = match self.kind {
            A2aErrorKind::TaskNotFound => StatusCode::NOT_FOUND,
            A2aErrorKind::TaskNotCancelable
            | A2aErrorKind::PushNotificationNotSupported
            | A2aErrorKind::UnsupportedOperation
            | A2aErrorKind::VersionNotSupported => return (StatusCode::BAD_REQUEST, "FAILED_PRECONDITION"),
            A2aErrorKind::ContentTypeNotSupported | A2aErrorKind::Parse | A2aErrorKind::InvalidRequest => {
                StatusCode::BAD_REQUEST
            }
            A2aErrorKind::MethodNotFound
            | A2aErrorKind::InvalidParams
            | A2aErrorKind::Internal
            | A2aErrorKind::Other => to_status(&self.error.code),
        };
        let name = match status {
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => "INVALID_ARGUMENT",
            StatusCode::UNAUTHORIZED => "UNAUTHENTICATED",
            StatusCode::FORBIDDEN => "PERMISSION_DENIED",
            StatusCode::NOT_FOUND => "NOT_FOUND",
            StatusCode::CONFLICT => "ABORTED",
            StatusCode::GONE => "OUT_OF_RANGE",
            StatusCode::TOO_MANY_REQUESTS => "RESOURCE_EXHAUSTED",
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::BAD_GATEWAY => "UNAVAILABLE",
            _ => "INTERNAL",
        };
        (status, name)
    }

    /// Returns what programs read: the reason with the stable code, and when to try again.
    pub(super) fn details(&self) -> Value {
        let code = self.error.code.as_str();
        let own = code.to_ascii_uppercase();
        let specified = self.kind.code_and_reason().1;
        let (reason, domain) = specified.map_or((own.as_str(), OWN), |reason| (reason, SPECIFIED));
        let info = json!({
            "@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": reason, "domain": domain, "metadata": {"code": code},
        });
        let retry = self.error.retry_after.map(|after| {
            let delay = format!("{}.{:03}s", after.as_secs(), after.subsec_millis());
            json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
        });
        Value::Array([Some(info), retry].into_iter().flatten().collect())
    }

    /// Returns the error object of JSON-RPC.
    pub(super) fn to_json_rpc(&self) -> Value {
        json!({"code": self.json_rpc_code(), "message": self.error.message, "data": self.details()})
    }

    /// Returns the body of an error of HTTP+JSON.
    pub(super) fn to_body(&self) -> Value {
        let (status, name) = self.status();
        json!({"error": {
            "code": status.as_u16(), "status": name, "message": self.error.message, "details": self.details(),
        }})
    }
}

impl From<ApiError> for A2aError {
    fn from(error: ApiError) -> Self {
        let unsupported = [ErrorCode::SessionEnded, ErrorCode::GateClosed, ErrorCode::NotNow, ErrorCode::UnknownCall];
        let invalid = [
            ErrorCode::BadRequest,
            ErrorCode::EmptyMessage,
            ErrorCode::InvalidArguments,
            ErrorCode::TooLarge,
            ErrorCode::UnknownAgent,
            ErrorCode::UnknownSession,
        ];
        let kind = if unsupported.contains(&error.code) {
            A2aErrorKind::UnsupportedOperation
        } else if invalid.contains(&error.code) {
            A2aErrorKind::InvalidParams
        } else if error.code == ErrorCode::UnknownMethod {
            A2aErrorKind::MethodNotFound
        } else if error.code == ErrorCode::Internal {
            A2aErrorKind::Internal
        } else {
            A2aErrorKind::Other
        };
        Self { kind, error }
    }
}

/// A request is noted with the error that all protocols share.
impl AsRef<ApiError> for A2aError {
    fn as_ref(&self) -> &ApiError {
        &self.error
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn error_has_the_codes_of_the_specification_and_the_stable_one() {
        let id: TaskId = "s.1".parse().unwrap();
        let rows = [
            (A2aError::task_not_found(&id), -32_001, 404, "NOT_FOUND", "TASK_NOT_FOUND", "unknown_session"),
            (ApiError::bad_request("x").into(), -32_602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS", "bad_request"),
            (
                ApiError::new(ErrorCode::SessionEnded, "x").into(),
                -32_004,
                400,
                "FAILED_PRECONDITION",
                "UNSUPPORTED_OPERATION",
                "session_ended",
            ),
            (
                ApiError::new(ErrorCode::Forbidden, "x").into(),
                -32_000,
                403,
                "PERMISSION_DENIED",
                "FORBIDDEN",
                "forbidden",
            ),
            (
                ApiError::new(ErrorCode::UnknownAgent, "x").into(),
                -32_602,
                404,
                "NOT_FOUND",
                "INVALID_PARAMS",
                "unknown_agent",
            ),
        ];
        for (fault, code, status, name, reason, stable) in rows {
            let details = fault.details();
            assert_eq!((fault.json_rpc_code(), fault.status().0.as_u16(), fault.status().1), (code, status, name));
            assert_eq!((&details[0]["reason"], &details[0]["metadata"]["code"]), (&json!(reason), &json!(stable)));
            assert_eq!(fault.to_body()["error"]["code"], status);
        }
    }

    #[test]
    fn error_with_a_time_says_when_to_try_again() {
        let error = ApiError::new(ErrorCode::Overloaded, "later").with_retry_after(Duration::from_millis(1_200));
        assert_eq!(A2aError::from(error).details()[1]["retryDelay"], "1.200s");
    }
}
