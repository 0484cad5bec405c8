//! Why a model call failed, in the words of the contract.

use std::time::Duration;

use contract::model::FailureKind;

/// Characters of a provider's own message that are kept.
pub const MESSAGE_CHARS_MAX: usize = 512;
/// How a message begins that does not know the provider's address yet.
const NO_ADDRESS: &str = "the provider ";

/// A failed attempt. The message is for people: no key and no content of the transcript stands in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// What the loop goes by.
    pub kind: FailureKind,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
    /// What happened, with the provider's own words.
    pub message: String,
    /// What happened, as far as we saw it: other tenants may read it.
    pub cause: String,
    /// Whether only the session was impatient: it says nothing of the provider's health.
    pub is_impatience: bool,
}

impl Failure {
    /// A failure without a wish to wait; a long message is cut, and control characters become spaces.
    pub fn new(kind: FailureKind, message: impl AsRef<str>) -> Self {
        let message = printable(message.as_ref());
        Self { kind, retry_after: None, cause: message.clone(), message, is_impatience: false }
    }

    /// A failure that the provider has words for.
    pub fn with_words(kind: FailureKind, cause: &str, words: &str) -> Self {
        let words = words.trim();
        let message = if words.is_empty() { cause.to_owned() } else { format!("{cause}: {words}") };
        Self { cause: printable(cause), ..Self::new(kind, message) }
    }

    /// Names the provider's address, `host:port`, where the message does not.
    #[must_use]
    pub fn at(mut self, address: &str) -> Self {
        for text in [&mut self.message, &mut self.cause] {
            match text.strip_prefix(NO_ADDRESS) {
                Some(rest) => *text = format!("{address} {rest}"),
                None if text.contains(address) => {}
                None => *text = format!("{address}: {text}"),
            }
        }
        self
    }
}

fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(MESSAGE_CHARS_MAX).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_the_address_once() {
        let at = |message: &str| Failure::new(FailureKind::Unreachable, message).at("h:1").message;
        assert_eq!(at("the provider answers with status 502"), "h:1 answers with status 502");
        assert_eq!(at("no connection to h:1: refused"), "no connection to h:1: refused");
        assert_eq!(at("the reply broke off"), "h:1: the reply broke off");
    }

    #[test]
    fn words_of_a_provider_are_printable_and_stay_out_of_the_cause() {
        let failure = Failure::with_words(FailureKind::Unreachable, "the provider fails", " a\u{1b}[31m\nb ");
        assert_eq!(
            (failure.message.as_str(), failure.cause.as_str()),
            ("the provider fails: a [31m b", "the provider fails")
        );
    }
}
