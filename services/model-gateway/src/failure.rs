//! Why a model call failed, in the words of the contract.

use std::time::Duration;

use contract::model::FailureKind;

/// Characters of a provider's own message that are kept.
pub const MESSAGE_CHARS_MAX: usize = 512;

/// A failed attempt. The message is for people: no key and no content of the transcript stands in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What the loop goes by.
    pub kind: FailureKind,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
    /// What happened.
    pub message: String,
}

impl Failure {
    /// A failure without a wish to wait; a long message is cut.
    pub fn new(kind: FailureKind, message: impl AsRef<str>) -> Self {
        let message: String = message.as_ref().chars().take(MESSAGE_CHARS_MAX).collect();
        Self { kind, retry_after: None, message }
    }
}
