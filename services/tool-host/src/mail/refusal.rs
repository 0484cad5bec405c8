//! Errors of the mail service: a text for a model, and a code for clients.

use ailoop_tool::ToolError;
use bus::BusError;
use contract::mail::MailResponse;
use contract::{Coded as _, ErrorCode};

/// A failed request to the mailboxes. The message says so where it may have taken effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailRefusal {
    /// The stable code that a client gets; a model reads only the message.
    pub code: ErrorCode,
    /// Description of the failure with its value, and what to do.
    pub message: String,
}

impl MailRefusal {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// A read that failed. Every read comes before the first write of its request, so nothing was stored.
    #[expect(clippy::needless_pass_by_value, reason = "for map_err")]
    pub(super) fn unreadable(error: BusError) -> Self {
        let message = format!("the mailboxes cannot be read now ({error}); try again later");
        Self { code: error.code(), message }
    }

    /// A write that failed on its way, which may have taken effect.
    #[expect(clippy::needless_pass_by_value, reason = "for map_err")]
    pub(super) fn unknown_outcome(error: BusError) -> Self {
        let message = format!("the mailboxes cannot be written now ({error}); whether anything was stored is unknown");
        Self { code: error.code(), message }
    }
}

impl From<MailRefusal> for ToolError {
    fn from(refusal: MailRefusal) -> Self {
        Self::new(refusal.message)
    }
}

impl From<MailRefusal> for MailResponse {
    fn from(MailRefusal { code, message }: MailRefusal) -> Self {
        Self::Refused { code, message }
    }
}
