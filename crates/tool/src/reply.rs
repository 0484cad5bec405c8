//! Return value of a handler: a result, or an error that the model reads.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

/// A result: JSON or text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply(Bytes);

impl Reply {
    /// Serialises anything as JSON.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, ToolError> {
        Ok(Self(serde_json::to_vec(value)?.into()))
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Value> for Reply {
    fn from(value: Value) -> Self {
        value.to_string().into()
    }
}

/// An error that the model reads. Any [`std::error::Error`] becomes one with `?`.
#[derive(Clone, PartialEq, Eq)]
pub struct ToolError {
    message: String,
    unknown: bool,
}

impl ToolError {
    /// An error that says what is wrong, and preferably what to do.
    pub fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), unknown: false }
    }

    /// An error of a call that may have taken effect: the session shows its outcome as `unknown`, and the model does
    /// not take it for one that failed.
    pub fn unknown(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), unknown: true }
    }

    /// Returns the text that the model reads.
    pub fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.unknown
    }
}

impl fmt::Debug for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.message, f)
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

// No `impl Error for ToolError`: it would forbid this one.
impl<E: std::error::Error> From<E> for ToolError {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}
