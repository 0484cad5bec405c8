//! Errors of a fleet and of the connection to it.

use std::time::Duration;

use tonic::{Code, Status};

/// Codes that pass by themselves: the same request may succeed later.
const RETRYABLE: [&str; 6] =
    ["overloaded", "too_many_waiting", "unavailable", "nats_unreachable", "draining", "slow_client"];

/// A request that failed, or a turn that could not go on.
///
/// Decide by [`ClientError::kind`] or by [`ClientError::code`]: codes do not change, but messages may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} [{code}]")]
pub struct ClientError {
    kind: ErrorKind,
    code: String,
    message: String,
    retry_after: Option<Duration>,
    seq: Option<u64>,
}

/// Kind of an error, by what a caller can do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The address, the key or the file of the authority cannot be used; nothing was sent.
    Configuration,
    /// The key would go to another machine in clear; nothing was sent. Use an `https://` address.
    PlaintextKey,
    /// The fleet is not reached, or the connection broke: nobody knows the outcome of a request. The code is
    /// `unreachable`, which no server sends.
    ConnectionFailed,
    /// The request is wrong, and a retry fails again.
    BadRequest,
    /// The key is missing or wrong (`unauthorized`), or does not grant this (`forbidden`).
    AccessDenied,
    /// A session, agent, model, call or mail does not exist.
    NotFound,
    /// The request does not fit the state: `session_ended`, `not_now`, `gate_closed` and the like.
    Conflict,
    /// The events at this place do not exist (any more): `resync` or `history_lost`. [`ClientError::seq`] says where to
    /// begin again.
    CursorLost,
    /// A limit is reached. The same request may succeed after [`ClientError::retry_after`].
    Overloaded,
    /// A part of the fleet does not answer. The same request may succeed later.
    Unavailable,
    /// A turn ended with the stop reason `error`. The code is that of the failure, such as `model_auth`.
    TurnFailed,
    /// A mistake of the server or of this crate.
    Internal,
}

impl ClientError {
    pub(crate) fn new(kind: ErrorKind, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, code: code.into(), message: message.into(), retry_after: None, seq: None }
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, "internal", message)
    }

    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::ConnectionFailed, "unreachable", message)
    }

    /// Returns the kind, which says what a caller can do about the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The stable code, such as `unknown_agent`.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Returns the description of the failure, for people.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the time to wait before a retry, if the server gives one.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The last `seq` of the session, of errors about a cursor.
    pub fn seq(&self) -> Option<u64> {
        self.seq
    }

    /// Whether the same request may succeed later. Commands and streams of this crate are repeated by themselves.
    pub fn is_retryable(&self) -> bool {
        self.kind == ErrorKind::ConnectionFailed
            || (self.kind != ErrorKind::TurnFailed && RETRYABLE.contains(&self.code.as_str()))
    }
}

impl From<Status> for ClientError {
    fn from(status: Status) -> Self {
        // A status that was made in this process has the error of HTTP/2 or TCP as its source; one of the edge has none.
        if let Some(cause) = std::error::Error::source(&status) {
            return Self::unreachable(format!("the connection to the fleet broke ({})", root_cause(cause)));
        }
        let text = |key| status.metadata().get(key).and_then(|value| value.to_str().ok());
        let number = |key| text(key).and_then(|text| text.parse().ok());
        let (kind, usual_code) = kind_of(status.code());
        let message = match status.message() {
            "" => format!("the fleet answered with the status {:?}", status.code()),
            message => message.to_owned(),
        };
        Self {
            kind,
            code: text(proto::ERROR_CODE).unwrap_or(usual_code).to_owned(),
            message,
            retry_after: number(proto::RETRY_AFTER_MS).map(Duration::from_millis),
            seq: number(proto::LAST_SEQ),
        }
    }
}

/// The kind of a gRPC status, and the code of a status without one: a proxy sends such.
fn kind_of(code: Code) -> (ErrorKind, &'static str) {
    match code {
        Code::InvalidArgument => (ErrorKind::BadRequest, "bad_request"),
        Code::Unimplemented => (ErrorKind::BadRequest, "unknown_method"),
        Code::Unauthenticated => (ErrorKind::AccessDenied, "unauthorized"),
        Code::PermissionDenied => (ErrorKind::AccessDenied, "forbidden"),
        Code::ResourceExhausted => (ErrorKind::Overloaded, "overloaded"),
        // A request that took longer than its timeout is cancelled.
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => (ErrorKind::Unavailable, "unavailable"),
        Code::NotFound => (ErrorKind::NotFound, "internal"),
        Code::FailedPrecondition | Code::AlreadyExists => (ErrorKind::Conflict, "internal"),
        Code::OutOfRange => (ErrorKind::CursorLost, "resync"),
        Code::DataLoss => (ErrorKind::CursorLost, "history_lost"),
        Code::Ok | Code::Unknown | Code::Aborted | Code::Internal => (ErrorKind::Internal, "internal"),
    }
}

/// The last cause of an error: those above it only say that there is one.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_metadata_precedes_status() {
        let mut status = Status::not_found("no such session");
        assert_eq!(ClientError::from(status.clone()).code(), "internal");
        let metadata = status.metadata_mut();
        metadata.insert(proto::ERROR_CODE, "unknown_session".parse().unwrap());
        metadata.insert(proto::RETRY_AFTER_MS, 1_500.into());
        metadata.insert(proto::LAST_SEQ, 7.into());
        let error = ClientError::from(status);
        assert_eq!((error.kind(), error.code()), (ErrorKind::NotFound, "unknown_session"));
        assert_eq!((error.retry_after(), error.seq()), (Some(Duration::from_millis(1_500)), Some(7)));
        assert_eq!(error.to_string(), "no such session [unknown_session]");
        assert!(!error.is_retryable());
    }

    #[test]
    fn broken_connection_is_retryable_and_internal_error_is_not() {
        let broken = Status::from_error(Box::new(std::io::Error::other("h2 protocol error: broken pipe")));
        let error = ClientError::from(broken);
        assert_eq!(error.message(), "the connection to the fleet broke (h2 protocol error: broken pipe)");
        assert_eq!((error.kind(), error.code()), (ErrorKind::ConnectionFailed, "unreachable"));
        assert!(error.is_retryable());
        assert!(!ClientError::from(Status::internal("our own mistake")).is_retryable());
        assert!(ClientError::from(Status::unavailable("")).is_retryable());
    }
}
