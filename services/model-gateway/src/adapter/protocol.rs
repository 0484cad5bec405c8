//! The protocols, and what depends on which of them a provider speaks.

use configuration::models::ProviderKind;
use contract::model::ModelItem;

use super::request::{ProtocolRequest, RequestTarget};
use super::response::ResponseReader;
use super::{anthropic, gemini, openai_chat, openai_responses};
use crate::failure::CallFailure;

/// A protocol of a provider over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProviderProtocol {
    /// Chat completions: `POST <base_url>/chat/completions`.
    OpenaiChat,
    /// OpenAI Responses: `POST <base_url>/responses`.
    OpenaiResponses,
    /// Anthropic Messages: `POST <base_url>/messages`.
    Anthropic,
    /// Google's generateContent: `POST <base_url>/models/<model>:streamGenerateContent`.
    Gemini,
}

impl ProviderProtocol {
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
