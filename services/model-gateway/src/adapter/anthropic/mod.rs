//! Anthropic's Messages.

pub(crate) mod reply;
pub(crate) mod request;

/// The name under which its parts are kept for the next request.
pub(crate) const REASONING_NAME: &str = "anthropic";
