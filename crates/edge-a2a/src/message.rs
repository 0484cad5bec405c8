//! Messages of agents and users in the history and the status of a task.

use contract::Json;
use contract::event::{ClientCallOpened, GateClosed, GateKind, GateOpened, StopReason, UserProcessed};
use contract::model::{Content, Part};
use edge_core::turn::TurnOutcome;
use serde_json::{Value, json};

use super::task_id::TaskId;

/// Returns the message of the user.
pub(super) fn of_user(task: &TaskId, message: &UserProcessed) -> Value {
    let parts = match &message.content {
        Content::Text(text) => vec![text_part(text)],
        Content::Parts(parts) => parts.iter().map(of_part).collect(),
    };
    of(task, message.message_id.as_str(), "ROLE_USER", &parts)
}

/// Returns the question of a gate: a text for people, and its fields for programs.
pub(super) fn of_gate(task: &TaskId, gate: &GateOpened) -> Value {
    let arguments = gate.arguments.as_ref().map_or(Value::Null, to_value);
    let tool = gate.tool.as_ref().map_or("", |tool| tool.as_str());
    let (kind, text) = match &gate.kind {
        GateKind::Approval => ("approval", format!("May the tool {tool} run? Answer `approve` or `deny`.")),
        GateKind::Question => {
            let question = arguments["question"].as_str().unwrap_or("The agent asks for an answer.").to_owned();
            ("question", question)
        }
        GateKind::Limit(limit) => (
            "limit",
            format!(
                "The turn is at its limit {}. May it use as much again? Answer `approve` or `deny`.",
                limit.as_str()
            ),
        ),
        GateKind::Error(failure) => (
            "error",
            format!(
                "A model call failed ({}). Shall it be tried again? Answer `approve` or `deny`.",
                failure.code().as_str()
            ),
        ),
    };
    let data = json!({
        "kind": kind, "gate": gate.gate, "tool": gate.tool, "arguments": arguments,
        "arguments_sha256": gate.arguments_sha256, "expires": gate.expires,
    });
    of(task, gate.gate.as_str(), "ROLE_AGENT", &[text_part(&text), data_part(&data)])
}

/// Returns the answer to a gate.
pub(super) fn of_answer(task: &TaskId, closed: &GateClosed) -> Value {
    let data = json!({"gate": closed.gate, "decision": closed.decision, "by": closed.by, "note": closed.note});
    of(task, &format!("{}-answer", closed.gate), "ROLE_USER", &[data_part(&data)])
}

/// Returns the request to perform a call.
pub(super) fn of_client_call(task: &TaskId, call: &ClientCallOpened) -> Value {
    let text = format!("Perform the call {} of the tool {}, and send its result.", call.call, call.tool);
    let data = json!({
        "kind": "client_call", "call": call.call, "tool": call.tool, "arguments": to_value(&call.arguments),
        "deadline": call.deadline,
    });
    of(task, call.call.as_str(), "ROLE_AGENT", &[text_part(&text), data_part(&data)])
}

/// Returns why a turn ended, unless its work is done.
pub(super) fn of_end(task: &TaskId, end: &TurnOutcome) -> Option<Value> {
    let (text, code) = match (end.stop_reason, &end.error) {
        (StopReason::Completed, _) => return None,
        (StopReason::Error, Some((code, text))) => (text.clone(), Some(code.as_str())),
        (StopReason::Error, None) => ("The turn failed.".to_owned(), Some("internal")),
        (StopReason::Stopped, _) => ("The turn was cancelled, or its session was stopped.".to_owned(), None),
        (limit, _) => (format!("The turn ended at its limit {}.", limit.as_str()), None),
    };
    let mut message = of(task, "end", "ROLE_AGENT", &[text_part(&text)]);
    message["metadata"] = json!({"stop_reason": end.stop_reason});
    if let Some(code) = code {
        message["metadata"]["code"] = json!(code);
    }
    Some(message)
}

/// An id of a message need be unique in its task only.
fn of(task: &TaskId, id: &str, role: &str, parts: &[Value]) -> Value {
    json!({
        "messageId": id, "role": role, "taskId": task.to_string(), "contextId": task.session, "parts": parts,
    })
}

fn of_part(part: &Part) -> Value {
    match part {
        Part::Text { text } => text_part(text),
        Part::ImageUrl { image_url } => {
            let inline = image_url.url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
            match inline {
                Some((media_type, raw)) => json!({"raw": raw, "mediaType": media_type}),
                None => json!({"url": image_url.url}),
            }
        }
    }
}

fn text_part(text: &str) -> Value {
    json!({"text": text, "mediaType": "text/plain"})
}

fn data_part(data: &Value) -> Value {
    json!({"data": data, "mediaType": "application/json"})
}

fn to_value(json: &Json) -> Value {
    serde_json::from_str(json.get()).unwrap_or_default()
}
