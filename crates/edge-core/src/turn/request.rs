//! Request to an agent, independent of the protocol in which it came.

use contract::client_tool::ClientTool;
use contract::model::{Content, HistoryMessage};
use contract::tool::EffectClass;
use contract::{AgentId, Json};
use serde_json::json;

use crate::api_error::ApiError;
use crate::params;

/// A turn that a client asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTurn {
    /// Agent that answers the prompt.
    pub agent: AgentId,
    /// Message of the user.
    pub prompt: Content,
    /// Messages and calls before the prompt, for a session that does not know them.
    pub history: Vec<HistoryMessage>,
    /// Under the names that the client gave.
    pub client_tools: Vec<ClientTool>,
}

/// Makes a tool of what a client says of it; `field` is that of the name.
pub fn client_tool(
    field: &str,
    name: &str,
    description: Option<&String>,
    parameters: Option<Json>,
) -> Result<ClientTool, ApiError> {
    Ok(ClientTool {
        name: params::parse(field, name)?,
        description: description.cloned().unwrap_or_default(),
        parameters: parameters.unwrap_or_else(|| Json::of(&json!({"type": "object"}))),
        effect: EffectClass::default(),
        timeout_ms: None,
        max_output: None,
    })
}
