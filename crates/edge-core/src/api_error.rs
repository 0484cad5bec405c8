//! The error of a request, the same for both protocols.

use std::time::Duration;

use bus::BusError;
use contract::command::Refusal;
use contract::{Coded as _, ErrorCode};

/// Retry delay for a request to a session that was moved, or is being moved.
pub(crate) const MOVE_RETRY_AFTER: Duration = Duration::from_secs(1);

/// Retry delay for a request that something was not there for.
const UNAVAILABLE_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The error of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// Stable code for programs.
    pub code: ErrorCode,
    /// Text for people: what failed, and what to do.
    pub message: String,
    /// Time after which a retry may succeed.
    pub retry_after: Option<Duration>,
    /// The last `seq` of the session, for errors about a cursor.
    pub seq: Option<u64>,
}

impl ApiError {
    /// Creates an error with neither `retry_after` nor `seq`.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None, seq: None }
    }

    /// Creates the error for a request that no process of a service answered.
    pub(crate) fn no_answer(service: &str) -> Self {
        Self::unavailable(format!("no {service} answers: check that one runs, and try again"))
    }

    /// Creates the error for a request to a service that failed on the bus.
    pub(crate) fn of_request(service: &str, error: BusError) -> Self {
        let is_unanswered = matches!(error, BusError::NoResponders { .. } | BusError::Timeout { .. });
        if is_unanswered { Self::no_answer(service) } else { error.into() }
    }

    /// Creates the error for a request that may succeed when it is repeated soon.
    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unavailable, message).with_retry_after(UNAVAILABLE_RETRY_AFTER)
    }

    /// Creates the error for an invalid request.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadRequest, message)
    }

    /// Creates the error for a request that a parser refuses.
    pub fn bad_request_by_parser(error: impl std::fmt::Display) -> Self {
        Self::bad_request(shorten(error.to_string()))
    }

    /// Sets the time after which a retry may succeed.
    #[must_use]
    pub fn with_retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Sets the last `seq` of the session.
    #[must_use]
    pub(crate) fn with_seq(mut self, seq: u64) -> Self {
        self.seq = Some(seq);
        self
    }

    /// Returns the code of the JSON-RPC error object; `data.code` has the stable one.
    pub fn json_rpc_code(&self) -> i32 {
        let params = [ErrorCode::BadRequest, ErrorCode::EmptyMessage, ErrorCode::TooLarge, ErrorCode::InvalidArguments];
        if self.code == ErrorCode::UnknownMethod {
            -32601
        } else if params.contains(&self.code) {
            -32602
        } else if self.code == ErrorCode::Internal {
            -32603
        } else {
            -32000
        }
    }
}

/// Maximum bytes of a parser's message, which quotes its input.
const PARSER_BYTES_MAX: usize = 600;

fn shorten(mut text: String) -> String {
    if text.len() > PARSER_BYTES_MAX {
        let end = text.floor_char_boundary(PARSER_BYTES_MAX / 2);
        // What the parser expected is at the end of its message.
        let rest = text.ceil_char_boundary(text.len() - PARSER_BYTES_MAX / 2);
        text.replace_range(end..rest, " … ");
    }
    text
}

/// Errors of other protocols have this one in them.
impl AsRef<Self> for ApiError {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        // The next request finds the new cell.
        let retry_after = (refusal.code == ErrorCode::SessionMoved).then_some(MOVE_RETRY_AFTER);
        Self { retry_after, ..Self::new(refusal.code, refusal.message) }
    }
}

impl From<BusError> for ApiError {
    fn from(error: BusError) -> Self {
        let retry = match &error {
            BusError::NoResponders { .. }
            | BusError::Timeout { .. }
            | BusError::Unavailable(_)
            | BusError::Full(_)
            | BusError::BodyMissing { .. }
            | BusError::TwoHistories { .. } => Some(Duration::from_secs(1)),
            BusError::TooLarge { .. } | BusError::Unusable { .. } | BusError::Malformed(_) => None,
        };
        Self { code: error.code(), message: error.to_string(), retry_after: retry, seq: None }
    }
}
