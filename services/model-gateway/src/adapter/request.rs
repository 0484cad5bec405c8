//! Values from which the protocols build a request, and the request that they build.

use std::sync::Arc;

use configuration::models::Quirks;
use serde_json::{Map, Value};

use crate::transcript_parts::StoredPart;

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
    /// Deviations of the server from its protocol.
    pub(crate) quirks: &'a Quirks,
    /// Checked parameters of the request: see [`check_parameters`](super::parameters::check_parameters).
    pub(crate) parameters: &'a Map<String, Value>,
    /// Parts of the transcript, whose messages stand behind the first one of the item.
    pub(crate) parts: &'a [Arc<StoredPart>],
}
