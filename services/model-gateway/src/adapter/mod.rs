//! The wire protocols of providers: what a request looks like, and what the bytes of an answer mean. All of it is pure; only
//! [`crate::http`] does IO.

pub mod anthropic;
pub mod classify;
pub mod frame;
pub mod gemini;
pub mod openai_chat;
pub mod openai_responses;
pub mod parameters;
#[cfg(test)]
mod testing;
pub mod transcript;
pub mod wire;

use contract::model::ModelItem;
use serde_json::{Map, Value};
use service::models::{ProviderKind, Quirks};

use crate::failure::Failure;
use frame::Answer;

/// A protocol that is spoken over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
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
pub struct Outgoing {
    /// What follows the provider's address.
    pub path: String,
    /// Headers that the protocol wants.
    pub headers: Vec<(&'static str, String)>,
    /// JSON.
    pub body: Vec<u8>,
}

/// Whom a request goes to.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The model in the provider's words.
    pub model: &'a str,
    /// Under which name parts of replies are kept for the next request: what one account signed no other one can read.
    pub voice: &'a str,
    /// Whether it reasons before it answers.
    pub reasoning: bool,
    /// Tokens of a reply, where they are known.
    pub max_output: Option<u64>,
    /// What its server does otherwise than its protocol says.
    pub quirks: &'a Quirks,
    /// What is sent beside the transcript, checked: see [`parameters::checked`].
    pub parameters: &'a Map<String, Value>,
}

impl Family {
    /// The protocol of a kind of provider; none for those that are not asked over HTTP.
    pub fn of(kind: ProviderKind) -> Option<Self> {
        Some(match kind {
            ProviderKind::OpenaiChat => Self::OpenaiChat,
            ProviderKind::OpenaiResponses => Self::OpenaiResponses,
            ProviderKind::Anthropic => Self::Anthropic,
            ProviderKind::Gemini => Self::Gemini,
            ProviderKind::Scripted => return None,
        })
    }

    /// How it is called in models.yaml.
    pub fn kind(self) -> &'static str {
        match self {
            Self::OpenaiChat => "openai_chat",
            Self::OpenaiResponses => "openai_responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
        }
    }

    /// The request for an item.
    pub fn request(self, item: &ModelItem, target: &Target<'_>) -> Result<Outgoing, Failure> {
        match self {
            Self::OpenaiChat => openai_chat::request::request(item, target),
            Self::OpenaiResponses => openai_responses::request::request(item, target),
            Self::Anthropic => anthropic::request::request(item, target),
            Self::Gemini => gemini::request::request(item, target),
        }
    }

    /// Reads one answer.
    pub fn answer(self) -> Answer {
        match self {
            Self::OpenaiChat => Answer::new(Box::<openai_chat::reply::Reader>::default()),
            Self::OpenaiResponses => Answer::new(Box::<openai_responses::reply::Reader>::default()),
            Self::Anthropic => Answer::new(Box::<anthropic::reply::Reader>::default()),
            Self::Gemini => Answer::new(Box::<gemini::reply::Reader>::default()),
        }
    }

    /// Under which name parts of its replies are kept for the next request; none where there are none.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::OpenaiChat => None,
            Self::OpenaiResponses => Some(openai_responses::FAMILY),
            Self::Anthropic => Some(anthropic::FAMILY),
            Self::Gemini => Some(gemini::FAMILY),
        }
    }

    /// The header that carries the provider's key, and what stands before the key in it.
    pub fn key_header(self) -> (&'static str, &'static str) {
        match self {
            Self::OpenaiChat | Self::OpenaiResponses => ("authorization", "Bearer "),
            Self::Anthropic => ("x-api-key", ""),
            Self::Gemini => ("x-goog-api-key", ""),
        }
    }
}
