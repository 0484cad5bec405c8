//! A client of MCP, of both revisions.

use reqwest::Response;
use serde_json::{Value, json};

use super::Fixture;
use super::http::{Http, SseReader, read};

pub(crate) const CURRENT: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";

/// A client of one revision.
pub(crate) struct Mcp {
    pub(crate) http: Http,
    /// The session of the transport, before 2026-07-28.
    pub(crate) session: Option<String>,
    pub(crate) has_forms: bool,
    pub(crate) path: &'static str,
}

impl Mcp {
    /// Makes a client of 2026-07-28.
    pub(crate) fn new(http: Http) -> Self {
        Self { http, session: None, has_forms: false, path: "/mcp" }
    }

    /// Shakes hands as clients before 2026-07-28 do.
    pub(crate) async fn legacy(fixture: &Fixture, has_forms: bool) -> Self {
        Self::legacy_of(http_of(fixture), has_forms).await
    }

    /// Shakes hands as these clients do, with the key of a client of HTTP.
    pub(crate) async fn legacy_of(http: Http, has_forms: bool) -> Self {
        let mut client = Self::new(http);
        let capabilities = if has_forms { json!({"elicitation": {}}) } else { json!({}) };
        let info = json!({"name": "test", "version": "1"});
        let params = json!({"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": info});
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let response = client.post(&body, &[]).await;
        assert_eq!(response.status(), 200);
        client.session = Some(response.headers()["mcp-session-id"].to_str().unwrap().to_owned());
        let answer = last_message(response).await;
        assert_eq!(answer["result"]["protocolVersion"], LEGACY, "{answer}");
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(client.post(&initialized, &[]).await.status(), 202);
        client
    }

    pub(crate) async fn post(&self, body: &Value, headers: &[(&'static str, &str)]) -> Response {
        let mut request = self
            .http
            .request("POST", self.path)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session).header("mcp-protocol-version", LEGACY);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(body.to_string()).send().await.unwrap()
    }

    /// Sends a request in the form of the client's revision.
    pub(crate) async fn request(&self, method: &str, mut params: Value) -> Response {
        if self.session.is_some() {
            return self.post(&json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}), &[]).await;
        }
        let capabilities = if self.has_forms { json!({"elicitation": {}}) } else { json!({}) };
        params["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!(CURRENT);
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        params["_meta"]["io.modelcontextprotocol/clientInfo"] = json!({"name": "test", "version": "1"});
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        let mut headers = vec![("mcp-protocol-version", CURRENT), ("mcp-method", method)];
        headers.extend(params["name"].as_str().map(|name| ("mcp-name", name)));
        self.post(&body, &headers).await
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Value {
        last_message(self.request("tools/call", json!({"name": tool, "arguments": arguments})).await).await
    }
}

pub(crate) fn http_of(fixture: &Fixture) -> Http {
    Http::new(fixture.edge.addresses().ws, None)
}

/// Returns the last message of a response, whether it is a stream or not.
pub(crate) async fn last_message(response: Response) -> Value {
    let kind = response.headers().get("content-type").cloned();
    if kind.is_none_or(|kind| kind != "text/event-stream") {
        return read(response).await.1;
    }
    messages(response).await.pop().unwrap()
}

pub(crate) async fn messages(response: Response) -> Vec<Value> {
    let mut events = SseReader::new(response);
    let mut messages = Vec::new();
    while let Some(event) = events.next().await {
        messages.push(serde_json::from_str(&event.data).unwrap());
    }
    messages
}
