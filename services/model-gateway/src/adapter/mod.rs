//! Protocols of providers: they build requests and read responses without IO. Only `http.rs` does IO.

pub(crate) mod anthropic;
pub(crate) mod classify;
pub(crate) mod gemini;
pub(crate) mod openai_chat;
pub(crate) mod openai_responses;
pub(crate) mod parameters;
mod protocol;
pub(crate) mod request;
pub(crate) mod response;
#[cfg(test)]
mod testing;
pub(crate) mod transcript;
pub(crate) mod wire;

pub use protocol::ProviderProtocol;
pub(crate) use request::{ProtocolRequest, RequestTarget};
pub use response::ResponseReader;
