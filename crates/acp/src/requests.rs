//! Parameters of the requests of an editor, and answers that need no fleet. Pure.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};

use super::prompt::PromptBlock;

/// The version of the protocol.
const PROTOCOL_VERSION: u32 = 1;
/// Parameters of the request `initialize`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InitializeParams {
    #[serde(default)]
    pub(super) client_capabilities: Value,
}

/// Parameters of `session/new`, `session/load` and `session/resume`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OpenParams {
    pub(super) session_id: Option<String>,
    pub(super) cwd: PathBuf,
    #[serde(default)]
    pub(super) mcp_servers: Vec<Value>,
}

/// Parameters of the request `session/prompt`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PromptParams {
    pub(super) session_id: String,
    pub(super) prompt: Vec<PromptBlock>,
}

/// Parameters of the request `session/set_config_option`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetParams {
    pub(super) session_id: String,
    pub(super) config_id: String,
    pub(super) value: String,
}

/// Parameters of a request that only names a session.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionParams {
    pub(super) session_id: String,
}

/// Makes the answer to `initialize`.
pub(super) fn initialize_answer() -> Value {
    json!({
        "protocolVersion": PROTOCOL_VERSION,
        "agentCapabilities": {
            "loadSession": true,
            "promptCapabilities": {"image": true, "audio": false, "embeddedContext": true},
            "mcpCapabilities": {"http": false, "sse": false},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}}
        },
        "agentInfo": {"name": "ailoop", "title": "ailoop", "version": env!("CARGO_PKG_VERSION")},
        "authMethods": []
    })
}

/// Makes the notice for a person whose editor brings MCP servers.
pub(super) fn mcp_notice(params: &OpenParams) -> Option<String> {
    (!params.mcp_servers.is_empty()).then(|| {
        let count = params.mcp_servers.len();
        format!(
            "(ailoop does not use the {count} MCP server(s) of this editor: tools run in the fleet. The operator of the \
             fleet adds MCP servers to its configuration.)\n\n"
        )
    })
}
