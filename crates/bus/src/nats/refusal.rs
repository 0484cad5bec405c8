//! Refusals of JetStream, and the errors that they become.

use std::fmt;

use contract::ErrorCode;
use serde::Deserialize;

use crate::BusError;
use crate::transport::Doubt;

/// Error codes of an append that another message beat, or may have beaten.
const OVERTAKEN: [u32; 3] = [10_071, 10_164, 10_158];
/// A maximum is exceeded: of the stream, or of one subject.
const MAXIMUM_EXCEEDED: u32 = 10_077;
/// Error codes of a full account (the first) or server (the others).
const FULL: [u32; 4] = [10_002, 10_023, 10_047, 10_028];
/// Part of the description where the subject already has its one message.
const PER_SUBJECT: &str = "per subject";
/// Error codes of a missing stream, and of a missing consumer.
pub(super) const NO_STREAM: u32 = 10_059;
/// JetStream is not enabled, for the server and for the account.
const NOT_ENABLED: [u32; 2] = [10_076, 10_039];

/// An error response of JetStream.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Refusal {
    /// A status as in HTTP: 4xx or 5xx.
    code: u16,
    /// The error code of JetStream, such as 10071.
    #[serde(default)]
    pub(super) err_code: u32,
    #[serde(default)]
    pub(super) description: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}: {}{}", self.err_code, self.description, advice(self.err_code, &self.description))
    }
}

impl Refusal {
    pub(super) fn is_not_enabled(&self) -> bool {
        NOT_ENABLED.contains(&self.err_code)
    }

    /// The doubt that the refusal leaves; none where nothing is stored for certain.
    pub(super) fn doubt(&self) -> Option<Doubt> {
        let text = self.to_string();
        match self.err_code {
            code if OVERTAKEN.contains(&code) => Some(Doubt::Overtaken(text)),
            MAXIMUM_EXCEEDED if self.description.contains(PER_SUBJECT) => Some(Doubt::Taken(text)),
            MAXIMUM_EXCEEDED => Some(Doubt::Full(text)),
            _ => None,
        }
    }

    /// Converts the refusal to the error of the caller.
    pub(super) fn into_error(self) -> BusError {
        if FULL.contains(&self.err_code) || self.code == 429 {
            BusError::Full(self.to_string())
        } else if self.code >= 500 {
            BusError::Unavailable(self.to_string())
        } else {
            BusError::Unusable { code: ErrorCode::Internal, message: format!("JetStream refuses: {self}") }
        }
    }
}

/// Advice for operators about a refusal; empty where there is none.
fn advice(err_code: u32, description: &str) -> &'static str {
    match err_code {
        10_002 => " (the account's limit: raise its max_file, or make room)",
        10_023 | 10_047 | 10_028 => " (nats-server's limit: raise max_file_store, or make room)",
        // A message that is there already is refused with the same code.
        MAXIMUM_EXCEEDED if !description.contains(PER_SUBJECT) => {
            " (somebody limited the stream: `ailoop bootstrap --fix`)"
        }
        _ => "",
    }
}

/// The error for a text of async-nats that contains the code of a full store.
pub(super) fn full(text: &str) -> Option<BusError> {
    let rest = text.split("error code ").nth(1)?;
    let err_code = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    let is_full = FULL.contains(&err_code) || err_code == MAXIMUM_EXCEEDED;
    is_full.then(|| BusError::Full(format!("error {err_code}: {text}{}", advice(err_code, text))))
}

/// The error where the client takes nothing any more.
pub(super) fn closed(error: &impl std::fmt::Display) -> BusError {
    BusError::Unavailable(format!("the connection is closed: {error}"))
}
