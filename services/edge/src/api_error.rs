//! Why a call came to nothing: one type, told alike by both protocols.

use std::time::Duration;

use bus::BusError;
use contract::ErrorCode;
use contract::command::Refusal;

/// A call that came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    /// Stable.
    pub(crate) code: ErrorCode,
    /// For people: what, and what to do.
    pub(crate) message: String,
    /// When the same may succeed.
    pub(crate) retry_after: Option<Duration>,
    /// The last `seq` that there is, where that is the point.
    pub(crate) seq: Option<u64>,
}

impl ApiError {
    /// A failure without more to tell.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after: None, seq: None }
    }

    /// The request is not what the contract says.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadRequest, message)
    }

    /// The request is not what the contract says, as its parser tells.
    pub(crate) fn bad_request_of(error: impl std::fmt::Display) -> Self {
        Self::bad_request(shorten(error.to_string()))
    }

    /// The same may succeed after this long.
    #[must_use]
    pub(crate) fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Adds the last `seq` that there is.
    #[must_use]
    pub(crate) fn with_seq(mut self, seq: u64) -> Self {
        self.seq = Some(seq);
        self
    }

    /// The code of the JSON-RPC error object; `data.code` holds the stable one.
    pub(crate) fn json_rpc_code(&self) -> i32 {
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

/// Bytes of what a parser says of a request: it quotes what it got, and that may be long.
const PARSER_BYTES_MAX: usize = 600;

fn shorten(mut text: String) -> String {
    if text.len() > PARSER_BYTES_MAX {
        let end = text.floor_char_boundary(PARSER_BYTES_MAX / 2);
        // What was expected stands at the end.
        let rest = text.ceil_char_boundary(text.len() - PARSER_BYTES_MAX / 2);
        text.replace_range(end..rest, " … ");
    }
    text
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code, refusal.message)
    }
}

impl From<BusError> for ApiError {
    fn from(error: BusError) -> Self {
        let retry = match &error {
            BusError::NoResponders { .. }
            | BusError::Timeout { .. }
            | BusError::Unavailable(_)
            | BusError::Full(_)
            | BusError::BodyMissing { .. } => Some(Duration::from_secs(1)),
            BusError::TooLarge { .. } | BusError::Unusable { .. } | BusError::Malformed(_) => None,
        };
        Self { code: error.code(), message: error.to_string(), retry_after: retry, seq: None }
    }
}
