//! OpenAI's Responses.

pub mod reply;
pub mod request;

/// The name under which its parts are kept for the next request.
pub const REASONING_NAME: &str = "openai_responses";
