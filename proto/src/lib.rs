//! The gRPC API of ailoop, generated from `ailoop/v2/ailoop.proto`.
//! [`json`] converts its messages to the JSON of the session API, and back.
//!
//! The file is part of the package, and its comments are the documentation of every message.

#![allow(missing_docs, clippy::pedantic, reason = "generated code")]

// A test holds it against the file, so that a build needs neither protoc nor a generator.
#[rustfmt::skip]
mod generated;
pub mod json;

pub use generated::*;

/// The compiled descriptors, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("descriptors.bin");

/// The metadata key that carries a stable error code.
pub const ERROR_CODE: &str = "ailoop-code";

/// The metadata key of the milliseconds after which a retry may succeed.
pub const RETRY_AFTER_MS: &str = "ailoop-retry-after-ms";

/// The metadata key of the last `seq`, of errors about a cursor.
pub const LAST_SEQ: &str = "ailoop-seq";

/// Request of a command that has nothing but a reason.
pub trait ControlRequest {
    /// Makes the request; an empty reason is left out.
    fn of(session_id: &str, command_id: Option<String>, reason: &str) -> Self;
}

macro_rules! control_requests {
    ($($request:ident),+) => {$(
        impl ControlRequest for $request {
            fn of(session_id: &str, command_id: Option<String>, reason: &str) -> Self {
                let reason = Some(reason.to_owned()).filter(|reason| !reason.is_empty());
                Self { session_id: session_id.to_owned(), command_id, reason, wait: None }
            }
        }
    )+};
}
control_requests!(
    CancelTurnRequest,
    ClearSessionRequest,
    PauseSessionRequest,
    ResumeSessionRequest,
    StopSessionRequest
);

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self { as_text: Some(text), as_list: Vec::new() }
    }
}
