//! The wire protocols of providers: what a request looks like, and what the bytes of an answer mean. All of it is pure; only
//! [`crate::http`] does IO.

pub(crate) mod anthropic;
pub(crate) mod classify;
pub(crate) mod gemini;
pub(crate) mod openai_chat;
pub(crate) mod openai_responses;
pub(crate) mod parameters;
pub(crate) mod response;
#[cfg(test)]
mod testing;
pub(crate) mod transcript;
pub(crate) mod wire;

use contract::model::ModelItem;
use serde_json::{Map, Value};
use service::models::{ProviderKind, Quirks};

use crate::failure::CallFailure;
pub use response::ResponseReader;

/// A protocol that is spoken over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// `POST <base_url>/chat/completions`.
    OpenaiChat,
    /// `POST <base_url>/responses`.
    OpenaiResponses,
    /// `POST <base_url>/messages`.
    Anthropic,
    /// `POST <base_url>/models/<model>:streamGenerateContent`.
    Gemini,
}

/// A request, but for keys and other headers of the operator's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProtocolRequest {
    /// What follows the provider's address.
    pub(crate) path: String,
    /// Headers that the protocol wants.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// JSON.
    pub(crate) body: Vec<u8>,
}

/// Whom a request goes to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestTarget<'a> {
    /// The model in the provider's words.
    pub(crate) model: &'a str,
    /// Under which name parts of replies are kept for the next request: what one account signed no other one can read.
    pub(crate) signer_id: &'a str,
    /// Whether it reasons before it answers.
    pub(crate) reasoning: bool,
    /// Tokens of a reply, where they are known.
    pub(crate) max_output: Option<u64>,
    /// What its server does otherwise than its protocol says.
    pub(crate) quirks: &'a Quirks,
    /// What is sent beside the transcript, checked: see [`parameters::checked`].
    pub(crate) parameters: &'a Map<String, Value>,
}

impl Protocol {
    /// The protocol of a kind of provider; none for those that are not asked over HTTP.
    pub(crate) fn from_kind(kind: ProviderKind) -> Option<Self> {
        Some(match kind {
            ProviderKind::OpenaiChat => Self::OpenaiChat,
            ProviderKind::OpenaiResponses => Self::OpenaiResponses,
            ProviderKind::Anthropic => Self::Anthropic,
            ProviderKind::Gemini => Self::Gemini,
            ProviderKind::Scripted => return None,
        })
    }

    /// How it is called in models.yaml.
    pub(crate) fn config_name(self) -> &'static str {
        match self {
            Self::OpenaiChat => "openai_chat",
            Self::OpenaiResponses => "openai_responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }

    /// The request for an item.
    pub(crate) fn build_request(
        self,
        item: &ModelItem,
        target: &RequestTarget<'_>,
    ) -> Result<ProtocolRequest, CallFailure> {
        match self {
            Self::OpenaiChat => openai_chat::request::build_request(item, target),
            Self::OpenaiResponses => openai_responses::request::build_request(item, target),
            Self::Anthropic => anthropic::request::build_request(item, target),
            Self::Gemini => gemini::request::build_request(item, target),
        }
    }

    /// Reads one answer.
    pub fn response_reader(self) -> ResponseReader {
        match self {
            Self::OpenaiChat => ResponseReader::new(Box::<openai_chat::reply::Reader>::default()),
            Self::OpenaiResponses => ResponseReader::new(Box::<openai_responses::reply::Reader>::default()),
            Self::Anthropic => ResponseReader::new(Box::<anthropic::reply::Reader>::default()),
            Self::Gemini => ResponseReader::new(Box::<gemini::reply::Reader>::default()),
        }
    }

    /// Under which name parts of its replies are kept for the next request; none where there are none.
    pub fn reasoning_name(self) -> Option<&'static str> {
        match self {
            Self::OpenaiChat => None,
            Self::OpenaiResponses => Some(openai_responses::REASONING_NAME),
            Self::Anthropic => Some(anthropic::REASONING_NAME),
            Self::Gemini => Some(gemini::REASONING_NAME),
        }
    }

    /// The header that carries the provider's key, and what stands before the key in it.
    pub(crate) fn key_header(self) -> (&'static str, &'static str) {
        match self {
            Self::OpenaiChat | Self::OpenaiResponses => ("authorization", "Bearer "),
            Self::Anthropic => ("x-api-key", ""),
            Self::Gemini => ("x-goog-api-key", ""),
        }
    }
}
