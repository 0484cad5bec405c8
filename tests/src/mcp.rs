//! A client of the edge's MCP endpoint.

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::http::Http;

/// The revision of the protocol that [`request`] speaks.
pub const REVISION: &str = "2026-07-28";
/// The header without which the endpoint answers nothing.
pub const ACCEPT: (&str, &str) = ("accept", "application/json, text/event-stream");

/// Sends a request with these capabilities of the client, and returns the last message of the answer.
pub async fn request(http: &Http, method: &str, mut params: Value, capabilities: Value) -> anyhow::Result<Value> {
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(REVISION);
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    let tool = params["name"].as_str().unwrap_or_default().to_owned();
    let mut headers = vec![ACCEPT, ("mcp-protocol-version", REVISION), ("mcp-method", method)];
    if !tool.is_empty() {
        headers.push(("mcp-name", &tool));
    }
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let text = http.post_with("/mcp", &headers, &body).await?.text().await?;
    let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap_or(&text);
    serde_json::from_str(last).with_context(|| text.clone())
}
