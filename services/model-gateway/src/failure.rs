//! Failure of a model call.

use std::time::Duration;

use contract::model::FailureKind;

/// Maximum characters of a failure's message.
pub(crate) const MESSAGE_CHARS_MAX: usize = 512;
/// Start of a message in which the address of the provider is still to be inserted.
const UNNAMED_PROVIDER: &str = "the provider ";

/// A failed try of a model call. The message is for people, and has no key and no content of the transcript.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallFailure {
    /// Decides whether and how the call is tried again.
    pub kind: FailureKind,
    /// Minimum wait before the next request, if the provider gave one.
    pub retry_after: Option<Duration>,
    /// Description of the failure, with the message of the provider.
    pub message: String,
    /// Description of the failure without the message of the provider: other tenants may read it.
    pub(crate) cause: String,
    /// Whether a timeout of the session was shorter than the default. Such a failure does not count against the
    /// provider.
    pub(crate) is_session_timeout: bool,
}

impl CallFailure {
    /// A failure without a minimum wait. A long message is cut, and control characters become spaces.
    pub(crate) fn new(kind: FailureKind, message: impl AsRef<str>) -> Self {
        let message = to_printable(message.as_ref());
        Self { kind, retry_after: None, cause: message.clone(), message, is_session_timeout: false }
    }

    /// A failure with the message of the provider.
    pub(crate) fn with_provider_message(kind: FailureKind, cause: &str, provider_message: &str) -> Self {
        let provider_message = provider_message.trim();
        let message =
            if provider_message.is_empty() { cause.to_owned() } else { format!("{cause}: {provider_message}") };
        Self { cause: to_printable(cause), ..Self::new(kind, message) }
    }

    /// Adds the address of the provider, `host:port`, unless the message has it.
    #[must_use]
    pub(crate) fn with_address(mut self, address: &str) -> Self {
        for text in [&mut self.message, &mut self.cause] {
            match text.strip_prefix(UNNAMED_PROVIDER) {
                Some(rest) => *text = format!("{address} {rest}"),
                None if text.contains(address) => {}
                None => *text = format!("{address}: {text}"),
            }
        }
        self
    }
}

fn to_printable(text: &str) -> String {
    let replace_control = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(MESSAGE_CHARS_MAX).map(replace_control).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_with_address_added_has_it_once() {
        let at = |message: &str| CallFailure::new(FailureKind::Unreachable, message).with_address("h:1").message;
        assert_eq!(at("the provider answers with status 502"), "h:1 answers with status 502");
        assert_eq!(at("no connection to h:1: refused"), "no connection to h:1: refused");
        assert_eq!(at("the reply broke off"), "h:1: the reply broke off");
    }

    #[test]
    fn provider_message_added_is_printable_and_not_in_the_cause() {
        let failure =
            CallFailure::with_provider_message(FailureKind::Unreachable, "the provider fails", " a\u{1b}[31m\nb ");
        assert_eq!(
            (failure.message.as_str(), failure.cause.as_str()),
            ("the provider fails: a [31m b", "the provider fails")
        );
    }
}
