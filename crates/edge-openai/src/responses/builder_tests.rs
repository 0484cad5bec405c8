//! Responses are the same whatever replica builds them, and from whatever event on.

use std::collections::BTreeMap;

use contract::client_tool::Performer;
use contract::event::ToolCallResult;
use contract::event::{AiFullReceived, ClientCallOpened, GateKind, GateOpened, StopReason, ToolCallIdentified};
use contract::model::{FinishReason, ToolCall, Usage};
use contract::spent::Spent;
use contract::tool::{ApprovalPolicy, EffectClass, Outcome};
use contract::{CallId, Json, SessionId, Timestamp, ToolName};
use edge_core::turn::{TurnOutcome, TurnPart};
use serde_json::{Value, json};

use super::builder::ResponseBuilder;
use super::ids::ResponseId;
use super::request::default_fields;

fn text(step: u32, delta: &str) -> TurnPart {
    TurnPart::Text { step, delta: delta.to_owned() }
}

fn reply(step: u32, text: &str, reasoning: &str, calls: &[&str]) -> TurnPart {
    let tool_calls = calls.iter().map(|call| ToolCall::new(call, "look", "{}")).collect();
    TurnPart::ReplyEnd {
        step,
        reply: Box::new(AiFullReceived {
            call: CallId::new("m1-1").unwrap(),
            turn: 1,
            step,
            text: text.to_owned(),
            raw: None,
            reasoning: reasoning.to_owned(),
            tool_calls,
            finish_reason: FinishReason::Stop,
            raw_finish_reason: String::new(),
            spent: Spent { usage: Usage { input: 7, output: 3, ..Usage::default() }, cost_usd: 0.0 },
            provider: String::new(),
            model: String::new(),
            latency_ms: 1,
            replay: None,
        }),
    }
}

fn call(id: &str, performer: Performer, approval: ApprovalPolicy) -> TurnPart {
    TurnPart::Call(Box::new(ToolCallIdentified {
        call: CallId::new(id).unwrap(),
        tool: ToolName::new("look").unwrap(),
        arguments: Json::of(&json!({})),
        effect: EffectClass::Pure,
        approval,
        timeout_ms: 1,
        max_output: 1,
        performer,
    }))
}

fn result(id: &str, outcome: Outcome) -> TurnPart {
    TurnPart::Result(Box::new(ToolCallResult {
        call: CallId::new(id).unwrap(),
        tool: "look".to_owned(),
        outcome,
        content: "seen".to_owned(),
        code: None,
        duration_ms: 1,
        whole: None,
        used: None,
        replaces: false,
        performer: Performer::Fleet,
        by: None,
    }))
}

fn gate(id: &str, kind: GateKind, arguments: &Value) -> TurnPart {
    TurnPart::GateOpened(Box::new(GateOpened {
        gate: CallId::new(id).unwrap(),
        kind,
        arguments_sha256: String::new(),
        expires: Timestamp::default(),
        tool: Some(ToolName::new("look").unwrap()),
        arguments: Some(Json::of(arguments)),
        on_expiry: contract::settings::OnExpiry::default(),
    }))
}

fn client_call(id: &str) -> TurnPart {
    TurnPart::ClientCall(Box::new(ClientCallOpened {
        call: CallId::new(id).unwrap(),
        tool: ToolName::new("look").unwrap(),
        arguments: Json::of(&json!({"a": 1})),
        effect: EffectClass::Pure,
        max_output: 1,
        deadline: Timestamp::default(),
    }))
}

fn end(stop_reason: StopReason) -> TurnPart {
    let final_response = String::new();
    TurnPart::End(Box::new(TurnOutcome { turn: 1, stop_reason, final_response, spent: Spent::default(), error: None }))
}

/// A turn as a replica streams it, and as another one finds it in the log.
fn turn_live_and_logged() -> (Vec<TurnPart>, Vec<TurnPart>) {
    let between = || vec![call("c1-1-1", Performer::Fleet, ApprovalPolicy::Never), result("c1-1-1", Outcome::Ok)];
    let mut live =
        vec![text(1, "\n"), text(1, "Let mé "), text(1, "look.\n\n"), reply(1, "Let mé look.", "Hm.", &["c1-1-1"])];
    live.extend(between());
    live.extend([text(2, "All is "), text(2, "well."), reply(2, "All is well.", "", &[]), end(StopReason::Completed)]);
    let mut logged = vec![text(1, "\nLet mé look."), reply(1, "Let mé look.", "Hm.", &["c1-1-1"])];
    logged.extend(between());
    logged.extend([text(2, "All is well."), reply(2, "All is well.", "", &[]), end(StopReason::Completed)]);
    (live, logged)
}

fn build(parts: &[TurnPart], starting_after: Option<u64>) -> (Vec<Value>, Value) {
    let id = ResponseId { session: SessionId::new("s").unwrap(), slot: 3, waiting: None };
    let mut builder = ResponseBuilder::new(id, default_fields(), starting_after);
    for part in parts {
        if builder.push(part.clone()) {
            break;
        }
    }
    let events = builder.take_ready();
    (events, builder.response())
}

fn number(event: &Value) -> u64 {
    event["sequence_number"].as_u64().unwrap()
}

/// Adds up the text of events by item, as clients do.
fn texts(events: &[Value]) -> BTreeMap<u64, String> {
    let mut texts: BTreeMap<u64, String> = BTreeMap::new();
    for event in events.iter().filter(|event| event["type"] == "response.output_text.delta") {
        texts.entry(event["output_index"].as_u64().unwrap()).or_default().push_str(event["delta"].as_str().unwrap());
    }
    texts
}

#[test]
fn stream_taken_up_after_any_event_by_another_replica_lacks_and_repeats_nothing() {
    let (live, logged) = turn_live_and_logged();
    let (events, response) = build(&live, None);
    let whole = texts(&build(&logged, None).0);
    for position in 0..events.len() {
        let (seen, last) = (&events[..=position], number(&events[position]));
        let (rest, found) = build(&logged, Some(last));
        assert!(rest.iter().all(|event| number(event) > last));
        assert_eq!(found["id"], response["id"]);
        let all: Vec<Value> = seen.iter().chain(&rest).cloned().collect();
        let mut kinds: Vec<&str> = all.iter().map(|event| event["type"].as_str().unwrap()).collect();
        kinds.retain(|kind| !kind.ends_with("output_text.delta"));
        let mut wanted: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
        wanted.retain(|kind| !kind.ends_with("output_text.delta"));
        assert_eq!(kinds, wanted, "after event {position}");
        for (index, text) in texts(&all) {
            assert_eq!(text.trim(), whole[&index].trim(), "after event {position}");
        }
    }
}

#[test]
fn items_are_added_once_in_order_and_done() {
    let (live, _) = turn_live_and_logged();
    let (events, response) = build(&live, None);
    assert!(events.windows(2).all(|pair| number(&pair[0]) < number(&pair[1])));
    let of = |kind: &str| -> Vec<u64> {
        let found = events.iter().filter(|event| event["type"] == format!("response.output_item.{kind}"));
        found.map(|event| event["output_index"].as_u64().unwrap()).collect()
    };
    assert_eq!((of("added"), of("done")), (vec![0, 1, 2, 3], vec![0, 1, 2, 3]));
    let kinds: Vec<&str> =
        response["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "reasoning", "mcp_call", "message"]);
    assert_eq!((&response["status"], &response["usage"]["total_tokens"]), (&json!("completed"), &json!(20)));
    assert_eq!(events[0]["type"], "response.created");
    assert_eq!(events.last().unwrap()["response"], response);
}

/// Runs parts, and returns the types of the items with their status, and the status of the response.
fn summary(parts: &[TurnPart]) -> String {
    let (_, response) = build(parts, None);
    let item = |item: &Value| format!("{}:{}", item["type"].as_str().unwrap(), item["status"].as_str().unwrap_or("-"));
    let items: Vec<String> = response["output"].as_array().unwrap().iter().map(item).collect();
    format!("{} {}", items.join(" "), response["status"].as_str().unwrap())
}

#[test]
fn response_ends_once_everything_that_waits_for_somebody_is_shown() {
    let approval = |id| [call(id, Performer::Fleet, ApprovalPolicy::Always), gate(id, GateKind::Approval, &json!({}))];
    let [first, first_gate] = approval("c1-1-1");
    let [second, second_gate] = approval("c1-1-2");
    let rows = [
        (
            vec![reply(1, "", "", &["c1-1-1", "c1-1-2"]), first, first_gate, second, second_gate],
            "mcp_approval_request:- mcp_approval_request:- completed",
        ),
        (
            vec![
                reply(1, "", "", &["c1-1-1", "c1-1-2"]),
                call("c1-1-1", Performer::Client, ApprovalPolicy::Never),
                call("c1-1-2", Performer::Client, ApprovalPolicy::Never),
                client_call("c1-1-1"),
                client_call("c1-1-2"),
            ],
            "function_call:completed function_call:completed completed",
        ),
        // A call of the fleet that still runs is shown again in the next response.
        (
            vec![
                reply(1, "", "", &["c1-1-1", "c1-1-2"]),
                call("c1-1-1", Performer::Fleet, ApprovalPolicy::Never),
                call("c1-1-2", Performer::Client, ApprovalPolicy::Never),
                client_call("c1-1-2"),
            ],
            "mcp_call:incomplete function_call:completed completed",
        ),
        (vec![result("c1-1-1", Outcome::Unknown), end(StopReason::Completed)], "mcp_call:failed completed"),
        (
            vec![gate("limit-1-1", GateKind::Limit(StopReason::MaxIterations), &json!({}))],
            "mcp_approval_request:- completed",
        ),
        (vec![text(1, "Half"), end(StopReason::Stopped)], "message:completed cancelled"),
        (vec![end(StopReason::TokenLimit)], " incomplete"),
        (vec![end(StopReason::Error)], " failed"),
        (vec![text(1, " \n"), reply(1, "", "", &["c1-1-1"])], " in_progress"),
    ];
    for (parts, wanted) in rows {
        assert_eq!(summary(&parts), wanted);
    }
}

#[test]
fn question_is_a_message() {
    let question = json!({"question": "Which?", "choices": ["a"]});
    let parts = [reply(1, "", "", &["c1-1-1"]), gate("c1-1-1", GateKind::Question, &question)];
    let mut parts = parts.to_vec();
    let TurnPart::Call(mut asked) = call("c1-1-1", Performer::Fleet, ApprovalPolicy::Never) else { panic!() };
    asked.tool = ToolName::new("ask_user").unwrap();
    parts.insert(1, TurnPart::Call(asked));
    let (_, response) = build(&parts, None);
    assert_eq!(response["output"][0]["content"][0]["text"], "Which?\n- a");
    assert_eq!(response["status"], "completed");
}
