//! `ai_rpc.model.default`: the model that gateways propose for agents that name none.

use serde::{Deserialize, Serialize};

/// Proposal of a gateway for the default model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct ModelProposal {
    /// Id of a model for which the gateway has a key; none where it has no key that chooses a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}
