//! Servers over standard input and output: this test program itself, started again with a variable that selects a role.

use std::io::{BufRead, Write};

use rmcp::ServiceExt;
use serde_json::{Value, json};

use crate::mcp::diary::Diary;
use crate::mcp::toy::Toy;

/// Role of the process, one of the constants below. Without it the test does nothing.
pub(crate) const ROLE: &str = "AILOOP_TEST_MCP_ROLE";
/// File in which the server notes what it does.
pub(crate) const DIARY: &str = "AILOOP_TEST_MCP_DIARY";

pub(crate) const MODERN: &str = "modern";
pub(crate) const LEGACY: &str = "legacy";
pub(crate) const RAW: &str = "raw";
pub(crate) const RICH: &str = "rich";

/// Arguments that start the program as a server. Two threads, since with one the name of a test is printed before it
/// runs.
pub(crate) const ARGS: [&str; 5] =
    ["mcp::stdio::server_process_for_the_other_tests", "--exact", "--nocapture", "--quiet", "--test-threads=2"];

#[test]
fn server_process_for_the_other_tests() {
    let (Some(role), Some(diary)) = (configuration::env(ROLE), configuration::env(DIARY)) else { return };
    let diary = Diary::at(diary);
    diary.note("starts");
    eprintln!("{role} server at your service");
    // Ends the line that the test harness has begun, which is no message of the protocol.
    println!();
    match role.as_str() {
        RAW => raw(answer_badly),
        RICH => raw(answer_richly),
        _ => toy(diary, role == LEGACY),
    }
}

#[tokio::main]
async fn toy(diary: Diary, legacy: bool) {
    let crash = || {
        eprintln!("out of luck");
        std::process::abort();
    };
    let service = Toy::new(diary, legacy, crash).serve(rmcp::transport::stdio()).await.unwrap();
    service.waiting().await.unwrap();
}

/// Speaks the protocol without a library.
fn raw(answer: fn(&Value) -> Value) {
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let Some(id) = request.get("id") else { continue };
        let answer = answer(&request);
        let mut whole = json!({"jsonrpc": "2.0", "id": id});
        whole.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
        println!("{whole}");
        std::io::stdout().flush().unwrap();
    }
}

/// Answers with malformed tools and content.
fn answer_badly(request: &Value) -> Value {
    match request["method"].as_str().unwrap() {
        "initialize" => json!({"result": {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "1"}}}),
        "tools/list" => json!({"result": {"tools": [
            {"name": "array", "inputSchema": []},
            {"name": "none"},
            {"name": 7, "inputSchema": {"type": "object"}},
            "what?",
            {"name": "good", "description": "Is good.", "inputSchema": {"type": "object"}},
        ]}}),
        "tools/call" => json!({"result": {"content": [{"type": "hologram"}, {"type": "text", "text": "good"}]}}),
        _ => json!({"error": {"code": -32601, "message": "unheard of"}}),
    }
}

/// Answers with rare features: a task, structured results, resources, and a schema that costs too much.
fn answer_richly(request: &Value) -> Value {
    let output = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let two =
        |level: u32| json!([{"$ref": format!("#/$defs/d{}", level + 1)}, {"$ref": format!("#/$defs/d{}", level + 1)}]);
    let mut definitions: serde_json::Map<String, Value> =
        (0..30).map(|level| (format!("d{level}"), json!({"anyOf": two(level)}))).collect();
    definitions.insert("d30".to_owned(), json!({"required": ["x"]}));
    match request["method"].as_str().unwrap() {
        "initialize" => {
            json!({"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": {"name": "rich", "version": "1"}}})
        }
        "tools/list" => json!({"result": {"tools": [
            {"name": "slow", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}},
            {"name": "count", "inputSchema": {"type": "object"}, "outputSchema": output},
            {"name": "costly", "inputSchema": {"type": "object", "$ref": "#/$defs/d0", "$defs": definitions}},
        ]}}),
        "tools/call" => {
            let n = &request["params"]["arguments"]["n"];
            json!({"result": {"content": [{"type": "text", "text": n.to_string()}], "structuredContent": {"n": n}}})
        }
        "resources/read" if request["params"]["uri"] == "toy://page" => {
            json!({"result": {"contents": [{"uri": "toy://page", "text": "a page"}]}})
        }
        "resources/read" => json!({"error": {"code": -32002, "message": "no such resource"}}),
        _ => json!({"error": {"code": -32601, "message": "unheard of"}}),
    }
}
