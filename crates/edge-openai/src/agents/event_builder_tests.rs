//! Events of a log, and the events of the Agents API that follow.

use contract::commit::SessionSummary;
use contract::event::{Envelope, Topic};
use contract::{Json, Timestamp};
use edge_core::feed::viewer_event::ViewerEvent;
use serde_json::{Value, json};

use super::event_builder::EventBuilder;
use super::history::SessionRecord;
use super::session_json::AgentSession;

fn builder() -> EventBuilder {
    let summary: SessionSummary = serde_json::from_value(json!({
        "session_id": "s", "tenant": "t", "phase": "idle", "agent": "e", "model": "m", "title": "", "turn": 0, "step": 0,
        "seq": 0, "started": Timestamp::from_millis(1_000), "updated": Timestamp::from_millis(1_000),
        "spent": spent(),
    }))
    .unwrap();
    EventBuilder::new(AgentSession::of_summary(&summary).at_start(), 0)
}

fn spent() -> Value {
    json!({"usage": {"input": 7, "output": 3, "cached": 0, "reasoning": 0}, "cost_usd": 0.0})
}

fn event(topic: Topic, seq: Option<u64>, data: &Value) -> ViewerEvent {
    let envelope = Envelope {
        id: "x".to_owned(),
        session_id: "s".parse().unwrap(),
        tenant: "t".parse().unwrap(),
        seq,
        time: Timestamp::from_millis(2_000),
        trace_id: String::new(),
        data: Json::of(data),
    };
    ViewerEvent::from_envelope(topic, envelope).unwrap()
}

fn message(seq: u64, id: &str, mode: &str) -> ViewerEvent {
    event(Topic::UserProcessed, Some(seq), &json!({"message_id": id, "content": "Hi", "mode": mode}))
}

fn started(seq: u64, turn: u32, id: &str) -> ViewerEvent {
    event(Topic::TurnStarted, Some(seq), &json!({"turn": turn, "messages": [id]}))
}

fn chunk(index: u64, delta: &str) -> ViewerEvent {
    chunk_of(1, index, delta)
}

fn chunk_of(turn: u32, index: u64, delta: &str) -> ViewerEvent {
    let data = json!({
        "turn": turn, "step": 1, "attempt": "1.1", "index": index, "channel": "text", "delta": delta, "final": false,
        "finish_reason": null,
    });
    event(Topic::AiChunkReceived, None, &data)
}

fn reply(seq: u64, turn: u32, text: &str, calls: &Value) -> ViewerEvent {
    let data = json!({
        "call": "c1-1", "turn": turn, "step": 1, "text": text, "reasoning": "", "tool_calls": calls,
        "finish_reason": "stop", "raw_finish_reason": "", "spent": spent(), "provider": "p", "model": "m",
        "latency_ms": 1,
    });
    event(Topic::AiFullReceived, Some(seq), &data)
}

fn completed(seq: u64, turn: u32, reason: &str) -> ViewerEvent {
    let data = json!({
        "turn": turn, "stop_reason": reason, "iterations": 1, "final_response": "", "spent": spent(),
    });
    event(Topic::TurnCompleted, Some(seq), &data)
}

fn waiting_call(seq: u64) -> ViewerEvent {
    let data = json!({
        "call": "c1-1-1", "tool": "weather", "arguments": {"city": "Bonn"}, "effect": "at_most_once",
        "max_output": 100, "deadline": Timestamp::from_millis(9_000),
    });
    event(Topic::ToolCallWaiting, Some(seq), &data)
}

fn result(seq: u64, outcome: &str) -> ViewerEvent {
    let data = json!({
        "call": "c1-1-1", "tool": "weather", "outcome": outcome, "content": "rain", "duration_ms": 1,
        "performer": "client",
    });
    event(Topic::ToolCallResult, Some(seq), &data)
}

fn fleet_call(seq: u64) -> ViewerEvent {
    let data = json!({
        "call": "c1-1-1", "tool": "list_files", "arguments": {"path": "."}, "effect": "pure", "approval": "always",
        "timeout_ms": 1, "max_output": 1,
    });
    event(Topic::ToolCallIdentified, Some(seq), &data)
}

fn gate(seq: u64) -> ViewerEvent {
    let data = json!({
        "gate": "c1-1-1", "kind": "approval", "arguments_sha256": "a", "expires": Timestamp::from_millis(9_000),
        "tool": "list_files", "arguments": {"path": "."}, "on_expiry": "deny",
    });
    event(Topic::GateOpened, Some(seq), &data)
}

/// All events, with the kinds of each without their common beginning.
fn follow(builder: &mut EventBuilder, events: &[ViewerEvent]) -> (Vec<Value>, String) {
    let all: Vec<Value> = events.iter().flat_map(|event| builder.push(event)).collect();
    let kinds: Vec<&str> =
        all.iter().map(|event| event["type"].as_str().unwrap().trim_start_matches("agent.session.")).collect();
    let kinds = kinds.join(" ").replace("turn.", "");
    (all, kinds)
}

fn record(events: &[Value]) -> Value {
    let mut record = SessionRecord::default();
    for event in events {
        record.push(event);
    }
    json!(record.items())
}

#[test]
fn turn_has_its_events_in_order_and_ends_with_an_idle_session() {
    let log = [
        message(1, "m1", "queue"),
        started(2, 1, "m1"),
        chunk(0, " "),
        chunk(1, "Good "),
        chunk(2, "day."),
        reply(3, 1, " Good day.", &json!([])),
        completed(4, 1, "completed"),
    ];
    let (all, kinds) = follow(&mut builder(), &log);
    assert_eq!(
        kinds,
        "in_progress created in_progress item.added item.added content_part.added output_text.delta \
         output_text.delta output_text.done content_part.done item.done completed idle"
    );
    let turn = &all[11]["turn"];
    assert_eq!((&turn["status"], &turn["usage"]["total_tokens"]), (&json!("completed"), &json!(10)));
    let item = &all[10]["item"];
    assert_eq!((&item["phase"], &item["content"][0]["text"]), (&json!("final_answer"), &json!(" Good day.")));
    assert!(all.iter().skip(1).take(11).all(|event| event["turn_id"] == "turn_s_1"), "{all:?}");
}

#[test]
fn events_of_a_client_without_chunks_and_of_one_with_chunks_have_the_same_ids() {
    let log = |has_chunks: bool| {
        let mut log = vec![message(1, "m1", "queue"), started(2, 1, "m1")];
        if has_chunks {
            log.extend([chunk(0, "Good "), chunk(1, "day.")]);
        }
        log.extend([reply(3, 1, "Good day.", &json!([])), completed(4, 1, "completed")]);
        log
    };
    let ids = |has_chunks: bool| {
        let (all, _) = follow(&mut builder(), &log(has_chunks));
        all.into_iter().map(|event| event["event_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (streamed, whole) = (ids(true), ids(false));
    assert!(whole.iter().all(|id| streamed.contains(id)), "{streamed:?} {whole:?}");
    let mut different = streamed.clone();
    different.sort();
    different.dedup();
    assert_eq!((streamed.len(), streamed.len() - whole.len()), (different.len(), 1));
}

#[test]
fn call_of_the_client_is_required_until_its_result() {
    for (outcome, status, output, error) in
        [("ok", "completed", json!("rain"), json!(null)), ("error", "failed", json!(null), json!("rain"))]
    {
        let mut builder = builder();
        let call = json!([{"id": "c1-1-1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}]);
        let log = [message(1, "m1", "queue"), started(2, 1, "m1"), reply(3, 1, "Let me look.", &call), waiting_call(4)];
        let (all, _) = follow(&mut builder, &log);
        let asked = &all[all.len() - 1];
        assert_eq!(asked["type"], "agent.session.requires_action");
        let wanted = json!([{
            "type": "function_call", "call_id": "c1-1-1", "turn_id": "turn_s_1", "name": "weather",
            "arguments": {"city": "Bonn"},
        }]);
        assert_eq!(asked["session"]["required_actions"], wanted);
        assert_eq!(all[all.len() - 3]["item"]["phase"], "commentary");
        let (all, kinds) = follow(&mut builder, &[result(5, outcome)]);
        assert_eq!(kinds, "item.done item.added in_progress");
        let made = &all[1]["item"];
        assert_eq!((&made["status"], &made["output"], &made["error"]), (&json!(status), &output, &error));
    }
}

#[test]
fn gate_is_an_approval_that_is_required_until_the_turn_ends() {
    let mut builder = builder();
    let (all, kinds) = follow(&mut builder, &[message(1, "m1", "queue"), started(2, 1, "m1"), fleet_call(3), gate(4)]);
    assert_eq!(kinds, "in_progress created in_progress item.added item.added requires_action");
    let action = &all[5]["session"]["required_actions"][0];
    assert_eq!((&action["request_id"], &action["request"]["name"]), (&json!("c1-1-1"), &json!("list_files")));
    assert_eq!(action["request"]["arguments"], json!({"path": "."}));
    let (all, kinds) = follow(&mut builder, &[completed(5, 1, "stopped")]);
    assert_eq!(kinds, "item.done cancelled idle");
    assert_eq!((&all[0]["item"]["status"], &all[2]["session"]["required_actions"]), (&json!("incomplete"), &json!([])));
}

#[test]
fn limit_is_an_approval_until_its_gate_is_closed() {
    let opened = json!({
        "gate": "g1", "kind": {"limit": "cost_limit"}, "arguments_sha256": "", "expires": Timestamp::from_millis(9_000),
        "tool": null, "arguments": null, "on_expiry": "deny",
    });
    let closed = json!({"gate": "g1", "decision": "approve", "by": null, "arguments": null, "note": null});
    let mut builder = builder();
    follow(&mut builder, &[message(1, "m1", "queue"), started(2, 1, "m1")]);
    let (all, kinds) = follow(&mut builder, &[event(Topic::GateOpened, Some(3), &opened)]);
    let request = &all[0]["session"]["required_actions"][0]["request"];
    assert_eq!((kinds.as_str(), &request["name"]), ("requires_action", &json!("go_on_after_cost_limit")));
    let (all, kinds) = follow(&mut builder, &[event(Topic::GateClosed, Some(4), &closed)]);
    assert_eq!((kinds.as_str(), &all[0]["session"]["required_actions"]), ("in_progress", &json!([])));
}

#[test]
fn message_of_a_running_turn_belongs_to_it_or_to_the_next_one_by_its_mode() {
    for (mode, turns) in [("steer", ["turn_s_1", "turn_s_1"]), ("queue", ["turn_s_1", "turn_s_2"])] {
        let log = [
            message(1, "m1", "queue"),
            started(2, 1, "m1"),
            message(3, "m2", mode),
            completed(4, 1, "completed"),
            started(5, 2, "m2"),
            reply(6, 2, "Yes.", &json!([])),
            completed(7, 2, "completed"),
        ];
        let (all, _) = follow(&mut builder(), &log);
        let items = record(&all);
        let of_user: Vec<&Value> = items.as_array().unwrap().iter().filter(|item| item["role"] == "user").collect();
        assert_eq!(of_user.len(), 2, "{mode}");
        assert_eq!(
            [&of_user[0]["turn_id"], &of_user[1]["turn_id"]],
            turns.map(|turn| json!(turn)).each_ref(),
            "{mode}"
        );
    }
}

#[test]
fn end_of_a_turn_has_the_status_of_its_reason() {
    let rows =
        [("completed", "completed"), ("stopped", "cancelled"), ("max_iterations", "failed"), ("error", "failed")];
    for (reason, status) in rows {
        let (all, kinds) =
            follow(&mut builder(), &[message(1, "m1", "queue"), started(2, 1, "m1"), completed(3, 1, reason)]);
        let turn = &all[all.len() - 2]["turn"];
        assert_eq!((&turn["status"], kinds.ends_with(&format!("{status} idle"))), (&json!(status), true), "{kinds}");
        assert_eq!(turn["error"]["code"].is_string(), status == "failed", "{reason}");
    }
}

#[test]
fn log_without_its_beginning_has_the_numbers_of_its_turns() {
    let message = || message(90, "m1", "queue");
    // A log of a fold below 15 does not say when a turn starts.
    for log in [
        vec![message(), started(91, 7, "m1"), completed(92, 7, "completed")],
        vec![message(), completed(91, 7, "completed")],
    ] {
        let (all, kinds) = follow(&mut builder(), &log);
        assert_eq!(kinds, "in_progress created in_progress item.added completed idle");
        assert_eq!(all[1]["turn_id"], "turn_s_7");
    }
}

#[test]
fn turn_that_a_piece_of_text_begins_has_the_ids_of_one_that_a_whole_reply_begins() {
    let ids = |second: &[ViewerEvent]| {
        let mut builder = builder();
        follow(&mut builder, &[message(1, "m0", "queue"), message(2, "m1", "queue")]);
        builder.push(&completed(3, 1, "completed"));
        let (all, _) = follow(&mut builder, second);
        let begin = all.iter().filter(|event| event["turn_id"] == "turn_s_2").take(3);
        begin.map(|event| event["event_id"].clone()).collect::<Vec<_>>()
    };
    let piece = ids(&[chunk_of(2, 0, "Yes")]);
    assert_eq!((piece.len(), &piece), (3, &ids(&[reply(4, 2, "Yes", &json!([]))])));
}
