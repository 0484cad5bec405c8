//! Tool calls and their results as updates. Pure.

use contract::Json;
use contract::event::{ToolCallIdentified, ToolCallProgress, ToolCallResult};
use contract::tool::{ApprovalPolicy, Outcome};
use serde_json::Value;
use terminal::format;
use terminal::printable::reveal_invisible;

use super::update::{CallContent, CallStatus, SessionUpdate, ToolCallFields, ToolKind};

/// Characters of the title of a call.
const TITLE_CHARS_MAX: usize = 80;

/// Words at the beginning of the name of a tool, and what such a tool does.
const KINDS: &[(&str, ToolKind)] = &[
    ("read", ToolKind::Read),
    ("look", ToolKind::Read),
    ("get", ToolKind::Read),
    ("list", ToolKind::Search),
    ("find", ToolKind::Search),
    ("search", ToolKind::Search),
    ("grep", ToolKind::Search),
    ("write", ToolKind::Edit),
    ("edit", ToolKind::Edit),
    ("patch", ToolKind::Edit),
    ("create", ToolKind::Edit),
    ("delete", ToolKind::Delete),
    ("remove", ToolKind::Delete),
    ("move", ToolKind::Move),
    ("rename", ToolKind::Move),
    ("run", ToolKind::Execute),
    ("exec", ToolKind::Execute),
    ("command", ToolKind::Execute),
    ("shell", ToolKind::Execute),
    ("fetch", ToolKind::Fetch),
    ("http", ToolKind::Fetch),
    ("web", ToolKind::Fetch),
    ("think", ToolKind::Think),
    ("delegate", ToolKind::Think),
];

/// Makes the updates of a new call. A call that needs no person runs at once.
pub(super) fn call_updates(call: &ToolCallIdentified) -> Vec<SessionUpdate> {
    let tool = call.tool.as_str();
    let fields = ToolCallFields {
        tool_call_id: call.call.to_string(),
        title: Some(title_of(tool, &call.arguments)),
        kind: Some(kind_of(tool)),
        status: Some(CallStatus::Pending),
        raw_input: Some(value_of(call.arguments.get())),
        ..ToolCallFields::default()
    };
    let mut updates = vec![SessionUpdate::ToolCall(fields)];
    if call.approval == ApprovalPolicy::Never {
        updates.push(status_update(&call.call.to_string(), CallStatus::InProgress));
    }
    updates
}

/// Makes the update that shows a call which was not shown before its result.
pub(super) fn unknown_call_update(result: &ToolCallResult) -> SessionUpdate {
    SessionUpdate::ToolCall(ToolCallFields {
        tool_call_id: result.call.to_string(),
        title: Some(reveal_invisible(&result.tool)),
        kind: Some(kind_of(&result.tool)),
        status: Some(CallStatus::Pending),
        ..ToolCallFields::default()
    })
}

/// Makes the update for a call that is further than before.
pub(super) fn status_update(call: &str, status: CallStatus) -> SessionUpdate {
    SessionUpdate::ToolCallUpdate(ToolCallFields {
        tool_call_id: call.to_owned(),
        status: Some(status),
        ..ToolCallFields::default()
    })
}

/// Makes the update for the progress that a running call shows.
pub(super) fn progress_update(progress: &ToolCallProgress) -> SessionUpdate {
    SessionUpdate::ToolCallUpdate(ToolCallFields {
        tool_call_id: progress.call.to_string(),
        status: Some(CallStatus::InProgress),
        content: Some(CallContent::text(&progress.text)),
        ..ToolCallFields::default()
    })
}

/// Makes the update for the result of a call.
pub(super) fn result_update(result: &ToolCallResult) -> SessionUpdate {
    let status = match result.outcome {
        Outcome::Ok => CallStatus::Completed,
        Outcome::Error | Outcome::Denied | Outcome::Timeout | Outcome::Cancelled | Outcome::Unknown => {
            CallStatus::Failed
        }
    };
    SessionUpdate::ToolCallUpdate(ToolCallFields {
        tool_call_id: result.call.to_string(),
        status: Some(status),
        content: Some(CallContent::text(&result.content)),
        raw_output: Some(value_of(&result.content)),
        ..ToolCallFields::default()
    })
}

/// Guesses from the name of a tool what it does; the catalogue does not say it.
fn kind_of(tool: &str) -> ToolKind {
    let name = tool.to_lowercase();
    KINDS.iter().find(|(word, _)| name.starts_with(word)).map_or(ToolKind::Other, |(_, kind)| *kind)
}

/// Makes a title of the tool and the first text among its arguments.
pub(super) fn title_of(tool: &str, arguments: &Json) -> String {
    let arguments = value_of(arguments.get());
    let first = arguments.as_object().and_then(|fields| fields.values().find_map(Value::as_str)).unwrap_or_default();
    let title = format!("{tool} {}", format::join_words(first));
    format::cut(reveal_invisible(title.trim()), TITLE_CHARS_MAX)
}

/// Reads a text as JSON; a text that is none stays a text.
pub(super) fn value_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(approval: &str) -> ToolCallIdentified {
        serde_json::from_value(json!({
            "call": "c1-1-1", "tool": "read_file", "arguments": {"max": 3, "path": "a\u{202e}.rs"}, "effect": "pure",
            "approval": approval, "timeout_ms": 1, "max_output": 1
        }))
        .unwrap()
    }

    fn result(outcome: &str, content: &str) -> Value {
        let result: ToolCallResult = serde_json::from_value(json!({
            "call": "c1-1-1", "tool": "read_file", "outcome": outcome, "content": content
        }))
        .unwrap();
        serde_json::to_value(result_update(&result)).unwrap()
    }

    #[test]
    fn call_is_pending_and_runs_at_once_without_an_approval() {
        let updates = serde_json::to_value(call_updates(&call("never"))).unwrap();
        assert_eq!(
            updates,
            json!([
                {
                    "sessionUpdate": "tool_call", "toolCallId": "c1-1-1", "title": "read_file a<U+202E>.rs",
                    "kind": "read", "status": "pending", "rawInput": {"max": 3, "path": "a\u{202e}.rs"}
                },
                {"sessionUpdate": "tool_call_update", "toolCallId": "c1-1-1", "status": "in_progress"}
            ])
        );
        assert_eq!(call_updates(&call("always")).len(), 1);
    }

    #[test]
    fn result_is_completed_or_failed_with_its_content() {
        let ok = result("ok", "{\"a\":1}");
        assert_eq!((&ok["status"], &ok["rawOutput"]), (&json!("completed"), &json!({"a": 1})));
        assert_eq!(ok["content"], json!([{"type": "content", "content": {"type": "text", "text": "{\"a\":1}"}}]));
        for outcome in ["error", "denied", "timeout", "cancelled", "unknown"] {
            let failed = result(outcome, "no");
            assert_eq!((&failed["status"], &failed["rawOutput"]), (&json!("failed"), &json!("no")), "{outcome}");
        }
    }

    #[test]
    fn kind_follows_from_the_name() {
        for (tool, kind) in [
            ("read_file", ToolKind::Read),
            ("list_files", ToolKind::Search),
            ("write_file", ToolKind::Edit),
            ("run_command", ToolKind::Execute),
            ("delegate", ToolKind::Think),
            ("weather", ToolKind::Other),
        ] {
            assert_eq!(kind_of(tool), kind, "{tool}");
        }
    }
}
