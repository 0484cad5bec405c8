//! Anthropic's Messages.

pub(crate) mod reply;
pub(crate) mod request;

/// Name under which reasoning parts of this protocol are stored.
pub(crate) const REASONING_NAME: &str = "anthropic";
