//! The JSON schemas of the tools.

use std::sync::Arc;

use rmcp::model::JsonObject;
use serde_json::{Value, json};

use super::arguments::WAIT_SECONDS_MAX;
use super::session_tool::SessionTool;

/// Returns the schema of the arguments of a tool that is no agent.
pub(super) fn of_session_tool(tool: SessionTool) -> Arc<JsonObject> {
    let session = json!({"type": "string", "description": "Id of the session."});
    match tool {
        SessionTool::Start => object(
            json!({
                "agent": {"type": "string", "description": "Key of the agent; the default agent."},
                "prompt": {"type": "string", "minLength": 1, "description": "The task."},
            }),
            &["prompt"],
        ),
        SessionTool::Status => object(
            json!({
                "session_id": session,
                "wait_seconds": {"type": "integer", "minimum": 0, "maximum": WAIT_SECONDS_MAX},
            }),
            &["session_id"],
        ),
        SessionTool::Send => object(
            json!({
                "session_id": session,
                "text": {"type": "string", "minLength": 1, "description": "The message."},
                "mode": {"type": "string", "enum": ["queue", "steer", "interrupt"], "description": "`queue`."},
            }),
            &["session_id", "text"],
        ),
        SessionTool::Answer => object(
            json!({
                "session_id": session,
                "gate": {"type": "string", "description": "Id of the gate."},
                "arguments_sha256": {"type": "string", "description": "Hash of what the person saw."},
                "decision": {"type": "string", "enum": ["approve", "deny", "answer"]},
                "content": {"type": "string", "description": "The answer to a question; with `answer`."},
                "note": {"type": "string", "description": "Reason of a denial, for the agent."},
                "wait": {"type": "boolean", "description": "Whether to wait for the end of the turn; true."},
            }),
            &["session_id", "gate", "arguments_sha256", "decision"],
        ),
        SessionTool::Stop => object(
            json!({"session_id": session, "reason": {"type": "string", "description": "Why, for the log."}}),
            &["session_id"],
        ),
        SessionTool::List => object(
            json!({
                "phase": {"type": "string", "enum": ["idle", "running", "paused", "ended"]},
                "agent": {"type": "string", "description": "Only sessions of this agent."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "description": "Entries; 20."},
                "cursor": {"type": "string", "description": "`next_cursor` of the page before."},
            }),
            &[],
        ),
    }
}

/// Returns the schema of the arguments of an agent.
pub(super) fn agent_arguments() -> Arc<JsonObject> {
    object(
        json!({
            "prompt": {"type": "string", "minLength": 1, "description": "The task, with all that the agent must know."},
            "session_id": {"type": "string", "description": "Id of a session that goes on; a new one."},
        }),
        &["prompt"],
    )
}

/// Returns the schema of the results of an agent. No field is required, so that the results of failures have this form too.
pub(super) fn agent_result() -> Arc<JsonObject> {
    let text = json!({"type": "string"});
    let properties = json!({
        "session_id": text,
        "state": {"type": "string", "enum": ["ended", "waiting"], "description": "`waiting`: a person is asked."},
        "turn": {"type": "integer"},
        "stop_reason": text,
        "answer": text,
        "usage": {"type": "object"},
        "gates": {"type": "array", "items": {"type": "object"}},
        "code": {"type": "string", "description": "Stable code of a failure."},
        "message": text,
        "retry_after_ms": {"type": "integer"},
    });
    let mut schema = JsonObject::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), properties);
    Arc::new(schema)
}

fn object(properties: Value, required: &[&str]) -> Arc<JsonObject> {
    let mut schema = JsonObject::new();
    schema.insert("type".to_owned(), json!("object"));
    schema.insert("properties".to_owned(), properties);
    schema.insert("required".to_owned(), json!(required));
    schema.insert("additionalProperties".to_owned(), json!(false));
    Arc::new(schema)
}
