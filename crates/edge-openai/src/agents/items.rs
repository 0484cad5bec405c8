//! Items of a session, and the ids of items and turns. They follow from the log, so that every replica gives the same.

use contract::client_tool::Performer;
use contract::event::{ClientCallOpened, ToolCallIdentified, ToolCallResult, UserProcessed};
use contract::model::{Content, Part};
use contract::tool::Outcome;
use contract::{CallId, SessionId};
use edge_core::turn::{name_for_client, without_instructions};
use serde_json::{Value, json};

use crate::function::SERVER_LABEL;

/// Returns the id of a turn.
pub(super) fn turn_id(session: &SessionId, turn: u32) -> String {
    format!("turn_{session}_{turn}")
}

/// Returns the id of the message that a step of a turn replies with.
pub(super) fn message_id(session: &SessionId, turn: u32, step: u32) -> String {
    format!("msg_{session}_{turn}_{step}")
}

/// Makes the item of a message of the user.
pub(super) fn user_message(session: &SessionId, turn: &str, message: &UserProcessed) -> Value {
    let content: Vec<Value> = match &message.content {
        Content::Text(text) => vec![json!({"type": "input_text", "text": without_instructions(text)})],
        Content::Parts(parts) => parts.iter().map(input_part).collect(),
    };
    json!({
        "id": format!("msg_{session}_user-{}", message.message_id), "type": "message", "role": "user",
        "status": "completed", "phase": null, "content": content, "turn_id": turn,
    })
}

fn input_part(part: &Part) -> Value {
    match part {
        Part::Text { text } => json!({"type": "input_text", "text": text}),
        Part::ImageUrl { image_url } => json!({"type": "input_image", "image_url": image_url.url}),
    }
}

/// Makes the item of a message of the agent; `text` is absent while it comes.
pub(super) fn reply(id: &str, turn: &str, status: &str, phase: Option<&str>, text: Option<&str>) -> Value {
    let content: Vec<Value> = text.into_iter().map(output_text).collect();
    json!({
        "id": id, "type": "message", "role": "assistant", "status": status, "phase": phase, "content": content,
        "turn_id": turn,
    })
}

/// Makes the part of a message that has its text.
pub(super) fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "text": text})
}

/// Makes the item of a call that the fleet performs; `None` for one of the client.
pub(super) fn fleet_call(session: &SessionId, turn: &str, call: &ToolCallIdentified) -> Option<Value> {
    match call.performer {
        Performer::Client => None,
        Performer::Fleet => Some(json!({
            "id": format!("mcp_{session}_{}", call.call), "type": "mcp_call", "server_label": SERVER_LABEL,
            "name": call.tool, "arguments": arguments(call.arguments.get()), "output": null, "error": null,
            "status": "in_progress", "turn_id": turn,
        })),
    }
}

/// Makes the item of a call that waits for the client.
pub(super) fn client_call(session: &SessionId, turn: &str, call: &ClientCallOpened) -> Value {
    json!({
        "id": format!("fc_{session}_{}", call.call), "type": "function_call", "call_id": call.call,
        "name": name_for_client(call.tool.as_str()),
        "arguments": arguments(call.arguments.get()), "status": "in_progress", "turn_id": turn,
    })
}

/// Completes the item of a call with its result.
pub(super) fn complete_call(mut item: Value, result: &ToolCallResult) -> Value {
    let is_ok = result.outcome == Outcome::Ok;
    item["status"] = json!(if is_ok { "completed" } else { "failed" });
    if item["type"] == "mcp_call" {
        if is_ok {
            item["output"] = json!(result.content);
        } else {
            item["error"] = json!({"message": result.content, "code": result.code});
        }
    }
    item
}

/// Makes the item of a result that the client gave.
pub(super) fn call_output(session: &SessionId, turn: &str, result: &ToolCallResult) -> Value {
    let is_ok = result.outcome == Outcome::Ok;
    json!({
        "id": format!("fco_{session}_{}", result.call), "type": "function_call_output", "call_id": result.call,
        "status": if is_ok { "completed" } else { "failed" }, "output": is_ok.then_some(&result.content),
        "error": (!is_ok).then_some(&result.content), "turn_id": turn,
    })
}

/// Returns arguments as an object, or as the text that the model wrote.
pub(super) fn arguments(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

/// Action that a session waits for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RequiredAction {
    pub(super) id: CallId,
    pub(super) body: Value,
}

impl RequiredAction {
    /// Makes the action for a call that waits for the client.
    pub(super) fn of_call(turn: &str, call: &CallId, tool: &str, call_arguments: &str) -> Self {
        let body = json!({
            "type": "function_call", "call_id": call, "turn_id": turn, "name": name_for_client(tool),
            "arguments": arguments(call_arguments),
        });
        Self { id: call.clone(), body }
    }
}
