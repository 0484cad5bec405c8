//! Why a model call failed, in the words of the contract.

use std::time::Duration;

use contract::model::FailureKind;

/// Characters of a provider's own message that are kept.
pub(crate) const MESSAGE_CHARS_MAX: usize = 512;
/// How a message begins that does not know the provider's address yet.
const UNNAMED_PROVIDER: &str = "the provider ";

/// A failed attempt. The message is for people: no key and no content of the transcript stands in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallFailure {
    /// What the loop goes by.
    pub kind: FailureKind,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
    /// What happened, with the provider's own words.
    pub message: String,
    /// What happened, as far as we saw it: other tenants may read it.
    pub(crate) cause: String,
    /// Whether only the session was impatient: it says nothing of the provider's health.
    pub(crate) is_session_timeout: bool,
}

impl CallFailure {
    /// A failure without a wish to wait; a long message is cut, and control characters become spaces.
    pub(crate) fn new(kind: FailureKind, message: impl AsRef<str>) -> Self {
        let message = to_printable(message.as_ref());
        Self { kind, retry_after: None, cause: message.clone(), message, is_session_timeout: false }
    }

    /// A failure that the provider has words for.
    pub(crate) fn with_provider_message(kind: FailureKind, cause: &str, provider_message: &str) -> Self {
        let provider_message = provider_message.trim();
        let message =
            if provider_message.is_empty() { cause.to_owned() } else { format!("{cause}: {provider_message}") };
        Self { cause: to_printable(cause), ..Self::new(kind, message) }
    }

    /// Names the provider's address, `host:port`, where the message does not.
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
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(MESSAGE_CHARS_MAX).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_the_address_once() {
        let at = |message: &str| CallFailure::new(FailureKind::Unreachable, message).with_address("h:1").message;
        assert_eq!(at("the provider answers with status 502"), "h:1 answers with status 502");
        assert_eq!(at("no connection to h:1: refused"), "no connection to h:1: refused");
        assert_eq!(at("the reply broke off"), "h:1: the reply broke off");
    }

    #[test]
    fn words_of_a_provider_are_printable_and_stay_out_of_the_cause() {
        let failure =
            CallFailure::with_provider_message(FailureKind::Unreachable, "the provider fails", " a\u{1b}[31m\nb ");
        assert_eq!(
            (failure.message.as_str(), failure.cause.as_str()),
            ("the provider fails: a [31m b", "the provider fails")
        );
    }
}
