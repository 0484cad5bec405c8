//! Google's generateContent.

pub mod reply;
pub mod request;

/// The name under which its parts are kept for the next request.
pub const REASONING_NAME: &str = "gemini";
