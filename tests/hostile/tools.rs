//! Hostile tools, and hostile MCP servers.

use std::time::Duration;

use ailoop_tests::client::TestClient;
use ailoop_tests::model::{RecordedRequest, ScriptedReply};
use ailoop_tool::{Effect, Tool, Tools};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::hostile::fleet::Target;
use crate::hostile::models::call_once;

/// A schema whose references double at each level.
fn doubling(levels: usize) -> Value {
    let mut defs = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
        defs.insert(format!("d{level}"), json!({"anyOf": [{"allOf": [next, next]}, {"allOf": [next, next]}]}));
    }
    defs.insert(format!("d{levels}"), json!({"type": "integer", "minimum": 1}));
    json!({"type": "object", "properties": {"value": {"$ref": "#/$defs/d0"}}, "$defs": defs})
}

/// Announces a tool whose schema is expensive to validate arguments against.
pub(crate) async fn schema(target: Target) -> anyhow::Result<()> {
    let tool = Tool::new("evil").effect(Effect::Pure).parameters(doubling(24));
    let tool = tool.handler(|_| async { Ok("never".to_owned()) });
    let _serving = Tools::connect(&target.nats).await?.tool(tool).serve().await?;
    sessions(&target).await
}

/// Runs sessions whose model calls a hostile tool.
pub(crate) async fn sessions(target: &Target) -> anyhow::Result<()> {
    let client = TestClient::connect(&target.url()).await?;
    // The catalogue knows it within seconds; a session that comes earlier has nothing to call.
    for number in target.numbers() {
        target.count(1);
        // The fleet may refuse it.
        let _ = target.begin(&client, &format!("evil{number}"), false).await;
        sleep(Duration::from_millis(250)).await;
    }
    Ok(())
}

pub(crate) fn call_evil(request: &RecordedRequest) -> ScriptedReply {
    call_once(request, &[("evil", json!({"value": "not a number"}))])
}

/// Serves a tool that reports progress as fast as it can and returns a long result.
pub(crate) async fn flooding_tool(target: Target) -> anyhow::Result<()> {
    let end = Instant::now() + target.length;
    let tool = Tool::new("evil").effect(Effect::Pure).timeout(Duration::from_secs(30));
    let tool = tool.handler(move |call: ailoop_tool::Call| async move {
        while Instant::now() < end {
            call.progress("p".repeat(64 << 10)).await;
        }
        Ok("z".repeat(700 << 10))
    });
    let _serving = Tools::connect(&target.nats).await?.tool(tool).serve().await?;
    sessions(&target).await
}

/// An MCP server over stdio that answers each call with endless notifications. It runs with the lowest priority, since
/// on another machine it would take no CPU from the fleet.
pub(crate) const SERVER: &str = r#"#!/usr/bin/env python3
import json, os, sys

os.nice(19)

def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()

for line in sys.stdin:
    asked = json.loads(line)
    method = asked.get("method")
    if method == "initialize":
        version = asked["params"]["protocolVersion"]
        server = {"name": "evil", "version": "1"}
        say({"id": asked["id"], "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}})
    elif method == "tools/list":
        tool = {"name": "flood", "description": "Floods.", "inputSchema": {"type": "object"}}
        say({"id": asked["id"], "result": {"tools": [tool]}})
    elif method == "tools/call":
        while True:
            say({"method": "notifications/message", "params": {"level": "info", "data": "x" * 60000}})
            say({"method": "notifications/tools/list_changed"})
            say({"id": 4711, "result": {}})
            print("y" * 1000, file=sys.stderr)
    elif "id" in asked:
        say({"id": asked["id"], "error": {"code": -32601, "message": "unknown"}})
"#;

pub(crate) fn call_server(request: &RecordedRequest) -> ScriptedReply {
    call_once(request, &[("mcp__evil__flood", json!({}))])
}
