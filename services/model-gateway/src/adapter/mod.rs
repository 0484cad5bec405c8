//! Protocols of providers: they build requests and read responses without IO. Only `http.rs` does IO.

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

use configuration::models::{ProviderKind, Quirks};
use contract::model::ModelItem;
use serde_json::{Map, Value};

use crate::failure::CallFailure;
pub use response::ResponseReader;

/// A protocol of a provider over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Chat completions: `POST <base_url>/chat/completions`.
    OpenaiChat,
    /// OpenAI Responses: `POST <base_url>/responses`.
    OpenaiResponses,
    /// Anthropic Messages: `POST <base_url>/messages`.
    Anthropic,
    /// Google's generateContent: `POST <base_url>/models/<model>:streamGenerateContent`.
    Gemini,
}

/// A request without the key and the headers of the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProtocolRequest {
    /// Path after the base URL of the provider.
    pub(crate) path: String,
    /// Headers that the protocol requires.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

/// Model and options of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestTarget<'a> {
    /// Name of the model at the provider.
    pub(crate) model: &'a str,
    /// Name of the signer of reasoning parts: no other account can read what one account signed.
    pub(crate) signer_id: &'a str,
    /// Whether the model reasons before it answers.
    pub(crate) reasoning: bool,
    /// Maximum tokens of a reply, if known.
    pub(crate) max_output: Option<u64>,
    /// Where the server deviates from its protocol.
    pub(crate) quirks: &'a Quirks,
    /// Checked parameters of the request: see [`parameters::check_parameters`].
    pub(crate) parameters: &'a Map<String, Value>,
}

impl Protocol {
    /// The protocol of a kind of provider; `None` for a kind without HTTP.
    pub(crate) fn from_kind(kind: ProviderKind) -> Option<Self> {
        Some(match kind {
            ProviderKind::OpenaiChat => Self::OpenaiChat,
            ProviderKind::OpenaiResponses => Self::OpenaiResponses,
            ProviderKind::Anthropic => Self::Anthropic,
            ProviderKind::Gemini => Self::Gemini,
            ProviderKind::Scripted => return None,
        })
    }

    /// Name of the protocol in models.yaml.
    pub(crate) fn config_name(self) -> &'static str {
        match self {
            Self::OpenaiChat => "openai_chat",
            Self::OpenaiResponses => "openai_responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }

    /// Builds the request for an item.
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

    /// A reader of one response.
    pub fn response_reader(self) -> ResponseReader {
        match self {
            Self::OpenaiChat => ResponseReader::new(Box::<openai_chat::reply::Reader>::default()),
            Self::OpenaiResponses => ResponseReader::new(Box::<openai_responses::reply::Reader>::default()),
            Self::Anthropic => ResponseReader::new(Box::<anthropic::reply::Reader>::default()),
            Self::Gemini => ResponseReader::new(Box::<gemini::reply::Reader>::default()),
        }
    }

    /// Name under which reasoning parts of replies are stored for the next request; `None` if the protocol has none.
    pub fn reasoning_name(self) -> Option<&'static str> {
        match self {
            Self::OpenaiChat => None,
            Self::OpenaiResponses => Some(openai_responses::REASONING_NAME),
            Self::Anthropic => Some(anthropic::REASONING_NAME),
            Self::Gemini => Some(gemini::REASONING_NAME),
        }
    }

    /// Header of the provider's key, and the prefix of its value.
    pub(crate) fn key_header(self) -> (&'static str, &'static str) {
        match self {
            Self::OpenaiChat | Self::OpenaiResponses => ("authorization", "Bearer "),
            Self::Anthropic => ("x-api-key", ""),
            Self::Gemini => ("x-goog-api-key", ""),
        }
    }
}
