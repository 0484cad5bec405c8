//! Rows of events, and the updates that a client gets.

use serde_json::{Value, json};

use super::*;

fn event(topic: &str, data: &Value) -> ParsedNotification {
    ParsedNotification::parse(&proto::Notification {
        topic: topic.to_owned(),
        id: String::new(),
        seq: (topic != "message.ai_chunk_received").then_some(1),
        time: "2026-01-15T10:30:45.000Z".to_owned(),
        trace_id: String::new(),
        data_json: data.to_string(),
    })
}

/// Names what follows from events; an update is its kind and its most telling field.
fn check(translator: &mut Translator, events: &[(&str, Value)], expect: &[&str]) {
    let rows = events.iter().flat_map(|(topic, data)| {
        let notification = event(topic, data);
        assert_ne!(notification.content, NotificationContent::Other, "{topic} {data}");
        translator.translate(&notification)
    });
    let rows: Vec<String> = rows.map(|row| describe(&row)).collect();
    assert_eq!(rows, expect);
}

fn describe(translation: &Translation) -> String {
    let Translation::Update(update) = translation else {
        return match translation {
            Translation::Message { id } => format!("message {id}"),
            Translation::GateOpened(gate) => format!("gate {}", gate.gate),
            Translation::GateClosed { gate } => format!("closed {gate}"),
            Translation::TurnEnded(result) => format!("end {} {:?}", result.stop_reason.as_str(), result.error),
            Translation::SessionEnded | Translation::Configured | Translation::Update(_) => {
                format!("{translation:?}")
            }
        };
    };
    let update = serde_json::to_value(update).unwrap();
    let kind = update["sessionUpdate"].as_str().unwrap();
    let fields = ["/content/text", "/title", "/status", "/used", "/entries", "/content/uri", "/content/mimeType"];
    let shown: Vec<String> = fields
        .iter()
        .filter_map(|field| update.pointer(field))
        .map(|field| field.as_str().map_or_else(|| field.to_string(), str::to_owned))
        .collect();
    format!("{kind} {}", shown.join(" "))
}

fn user(id: &str, content: &Value) -> (&'static str, Value) {
    ("message.user_processed", json!({"message_id": id, "content": content, "mode": "steer"}))
}

fn reply(step: u32, text: &str) -> (&'static str, Value) {
    let usage = json!({"usage": {"input": 90, "output": 10}, "cost_usd": 0.5});
    let data = json!({
        "call": format!("m1-{step}"), "turn": 1, "step": step, "text": text, "finish_reason": "stop", "spent": usage
    });
    ("message.ai_full_received", data)
}

fn call(approval: &str) -> (&'static str, Value) {
    let data = json!({
        "call": "c1", "tool": "write_file", "arguments": {"path": "a"}, "effect": "at_most_once", "approval": approval,
        "timeout_ms": 1, "max_output": 1
    });
    ("tool_call.identified", data)
}

fn result(call: &str, outcome: &str) -> (&'static str, Value) {
    ("tool_call.result_processed", json!({"call": call, "tool": "write_file", "outcome": outcome, "content": "r"}))
}

fn gate(kind: &Value) -> (&'static str, Value) {
    let data = json!({"gate": "c1", "kind": kind, "arguments_sha256": "", "expires": "2026-01-15T10:30:45.000Z"});
    ("gate.opened", data)
}

fn closed(decision: &str) -> (&'static str, Value) {
    ("gate.closed", json!({"gate": "c1", "decision": decision}))
}

fn end(stop_reason: &str, answer: &str) -> (&'static str, Value) {
    let data = json!({"turn": 1, "stop_reason": stop_reason, "iterations": 1, "final_response": answer, "spent": {}});
    ("turn.completed", data)
}

#[test]
fn message_of_this_editor_is_not_shown_again() {
    let mut translator = Translator::default();
    translator.set_own_message("mine");
    let image = json!([
        {"type": "text", "text": "See"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    ]);
    check(
        &mut translator,
        &[user("mine", &json!("Hi")), user("other", &image)],
        &[
            "message mine",
            "user_message_chunk See",
            "user_message_chunk image/png",
            "user_message_chunk https://example.com/a.png",
            "message other",
        ],
    );
    assert!(translator.is_turn_running());
}

#[test]
fn call_goes_from_pending_to_its_result() {
    let rows = [call("never"), result("c1", "ok"), reply(2, "Done"), end("completed", "Done")];
    check(
        &mut Translator::default(),
        &rows,
        &[
            "tool_call write_file a pending",
            "tool_call_update in_progress",
            "tool_call_update completed",
            "agent_message_chunk Done",
            "end completed None",
        ],
    );
    check(
        &mut Translator::default(),
        &[result("c9", "error"), end("completed", "Only in the end")],
        &[
            "tool_call write_file pending",
            "tool_call_update failed",
            "agent_message_chunk Only in the end",
            "end completed None",
        ],
    );
}

#[test]
fn gate_of_a_call_changes_its_status_and_another_gate_is_a_call() {
    let mut translator = Translator::default();
    check(&mut translator, &[call("always"), gate(&json!("approval"))], &["tool_call write_file a pending", "gate c1"]);
    assert_eq!(translator.open_gates().len(), 1);
    check(&mut translator, &[closed("approve")], &["tool_call_update in_progress", "closed c1"]);
    check(&mut translator, &[closed("approve")], &[]);
    check(&mut translator, &[gate(&json!("approval")), closed("deny")], &["gate c1", "closed c1"]);
    let limit = json!({"limit": "max_iterations"});
    check(
        &mut translator,
        &[gate(&limit), closed("deny")],
        &[
            "tool_call The turn is at its limit (max_iterations). Go on? pending",
            "gate c1",
            "tool_call_update failed",
            "closed c1",
        ],
    );
}

#[test]
fn failed_turn_has_the_last_error_that_is_in_the_log() {
    let error = |code: &str| ("error", json!({"code": code, "message": "m", "retryable": false, "during": ""}));
    check(
        &mut Translator::default(),
        &[error("model_auth"), end("error", "")],
        &["end error Some((ModelAuth, \"m\"))"],
    );
    check(&mut Translator::default(), &[error("model_auth"), end("completed", "")], &["end completed None"]);
}

#[test]
fn session_begins_with_its_history_and_counts_tokens_where_the_window_is_known() {
    let started = json!({
        "agent": {"id": "e", "name": "Eamonn", "continuation": {}, "tools": {}},
        "model": {"id": "large", "context_window": 1000},
        "interactive": true, "prompt": "", "fingerprint": "", "streaming": {},
        "messages": [
            {"role": "user", "content": "Before"}, {"role": "assistant", "content": "Answer"},
            {"role": "tool", "tool_call_id": "x", "content": "r"}
        ]
    });
    let mut translator = Translator::default();
    check(
        &mut translator,
        &[("session_started", started), reply(1, "One"), reply(2, "Two")],
        &[
            "user_message_chunk Before",
            "agent_message_chunk Answer",
            "Configured",
            "agent_message_chunk One",
            "usage_update 100",
            "agent_message_chunk \n\nTwo",
            "usage_update 100",
        ],
    );
    assert_eq!((translator.settings(), translator.spent.total().cost_usd), (("e", "large"), 1.0));
}

#[test]
fn plan_is_shown_when_it_changes() {
    let progress = |done: &[&str], next: &[&str]| {
        let progress = json!({"steps_completed": done, "steps_remaining": next});
        let data = json!({
            "agent_id": "e", "turn": 1, "iteration": 1, "max_iterations": 9, "progress": progress, "current_tools": [],
            "continues": true, "source": "explicit", "reason": "", "status": "", "excerpt": "", "call_ids": []
        });
        ("continuation.progress", data)
    };
    let plan = "plan [{\"content\":\"a\",\"priority\":\"medium\",\"status\":\"completed\"},\
                {\"content\":\"b\",\"priority\":\"medium\",\"status\":\"in_progress\"},\
                {\"content\":\"c\",\"priority\":\"medium\",\"status\":\"pending\"}]";
    let rows = [progress(&["a"], &["b", "c"]), progress(&["a"], &["b", "c"]), progress(&[], &[])];
    check(&mut Translator::default(), &rows, &[plan]);
}

#[test]
fn pause_is_known_until_the_session_goes_on() {
    let mut translator = Translator::default();
    let paused = ("status.paused", json!({"by": "me", "reason": "lunch"}));
    check(&mut translator, &[paused], &[]);
    assert_eq!(translator.paused().and_then(|status| status.reason.as_deref()), Some("lunch"));
    check(&mut translator, &[("status.resumed", json!({}))], &[]);
    assert_eq!(translator.paused(), None);
}

#[test]
fn cancelled_reply_is_silent_until_its_turn_ends() {
    let mut translator = Translator::default();
    translator.mute();
    let spent = json!({"usage": {}, "cost_usd": 0.0});
    let stopped = json!({
        "turn": 1, "stop_reason": "stopped", "iterations": 1, "final_response": "Unheard-of", "spent": spent,
    });
    check(&mut translator, &[reply(1, "Unheard-of"), ("turn.completed", stopped)], &["end stopped None"]);
    check(&mut translator, &[reply(2, "New")], &["agent_message_chunk New"]);
}
