//! Parts of turns, and the events that follow. Each row is checked by the rules of the clients.

use std::collections::BTreeSet;

use contract::client_tool::Performer;
use contract::command::AnswerDecision;
use contract::event::{AiFullReceived, ClientCallOpened, GateClosed, GateKind, GateOpened, StopReason, ToolCallResult};
use contract::limits::{AG_UI_DELTA_BYTES_MAX, AG_UI_SNAPSHOT_BYTES_MAX};
use contract::model::{FinishReason, ToolCall, Usage};
use contract::settings::OnExpiry;
use contract::spent::Spent;
use contract::tool::{EffectClass, Outcome};
use contract::{CallId, ErrorCode, Json, SessionId, Timestamp, ToolName};
use serde_json::{Value, json};
use service::connections::ByteBudget;

use super::super::event_order;
use super::*;

fn id(text: &str) -> CallId {
    CallId::new(text).unwrap()
}

fn text(step: u32, delta: &str) -> TurnPart {
    TurnPart::Text { step, delta: delta.to_owned() }
}

fn reasoning(step: u32, delta: &str) -> TurnPart {
    TurnPart::Reasoning { step, delta: delta.to_owned() }
}

fn reply_end(step: u32, calls: &[&str]) -> TurnPart {
    let reply = AiFullReceived {
        call: CallId::model(1, step),
        turn: 1,
        step,
        text: String::new(),
        raw: None,
        reasoning: String::new(),
        tool_calls: calls.iter().map(|call| ToolCall::new(call, "send", "{\"to\":\"ann\"}")).collect(),
        finish_reason: FinishReason::Stop,
        raw_finish_reason: String::new(),
        spent: Spent { usage: Usage { input: 5, output: 2, ..Usage::default() }, cost_usd: 0.0 },
        provider: "p".to_owned(),
        model: "m".to_owned(),
        latency_ms: 1,
        replay: None,
    };
    TurnPart::ReplyEnd { step, reply: Box::new(reply) }
}

fn result_of(call: &str, outcome: Outcome, performer: Performer) -> ToolCallResult {
    ToolCallResult {
        call: id(call),
        tool: "send".to_owned(),
        outcome,
        content: "done".to_owned(),
        code: (outcome == Outcome::Error).then_some(ErrorCode::ToolError),
        duration_ms: 1,
        whole: None,
        used: None,
        replaces: false,
        performer,
        by: None,
    }
}

fn result(call: &str) -> TurnPart {
    TurnPart::Result(Box::new(result_of(call, Outcome::Ok, Performer::Fleet)))
}

fn client_call(call: &str) -> TurnPart {
    TurnPart::ClientCall(Box::new(ClientCallOpened {
        call: id(call),
        tool: ToolName::new("send").unwrap(),
        arguments: Json::parse("{}").unwrap(),
        effect: EffectClass::Pure,
        max_output: 1,
        deadline: Timestamp::from_millis(9),
    }))
}

fn gate(call: &str, kind: GateKind, arguments: &str) -> GateOpened {
    GateOpened {
        gate: id(call),
        kind,
        arguments_sha256: "ab12".to_owned(),
        expires: Timestamp::from_millis(4_000_000_000_000),
        tool: Some(ToolName::new("send").unwrap()),
        arguments: Some(Json::parse(arguments).unwrap()),
        on_expiry: OnExpiry::Deny,
    }
}

fn asks(call: &str) -> TurnPart {
    TurnPart::GateOpened(Box::new(gate(call, GateKind::Approval, "{\"to\":\"ann\"}")))
}

fn closed(call: &str) -> TurnPart {
    TurnPart::GateClosed(Box::new(GateClosed {
        gate: id(call),
        decision: AnswerDecision::Approve,
        by: None,
        arguments: None,
        arguments_sha256: None,
        note: None,
    }))
}

fn end(stop_reason: StopReason) -> TurnPart {
    let error = Some((ErrorCode::ModelQuota, "no money".to_owned())).filter(|_| stop_reason == StopReason::Error);
    let (final_response, spent) = (String::new(), Spent::default());
    TurnPart::End(Box::new(TurnOutcome { turn: 1, stop_reason, final_response, spent, error }))
}

fn reply(is_version_1: bool) -> RunReply {
    let names = RunNames {
        thread_id: "t".to_owned(),
        run_id: "r".to_owned(),
        parent_run_id: None,
        is_version_1,
        client_tools: BTreeSet::new(),
    };
    let messages = vec![Json::parse(r#"{"id":"m1","role":"user","content":"Hi"}"#).unwrap()];
    RunReply::new(
        names,
        SessionId::new("s").unwrap(),
        4,
        ThreadSnapshot::new(ByteBudget::new(64 << 20), None, messages),
    )
}

/// Returns the events of a run whose turn has these parts, after those that begin it.
fn events(mut reply: RunReply, parts: Vec<TurnPart>) -> Vec<Value> {
    let mut events = reply.begin();
    events.extend(parts.into_iter().flat_map(|part| reply.push(part)).collect::<Vec<_>>());
    let events: Vec<Value> = events.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    event_order::check(&events).unwrap_or_else(|why| panic!("{why}\n{events:#?}"));
    events[2..].to_vec()
}

/// One word for each event, with the end of its id or its delta.
fn brief(events: &[Value]) -> Vec<String> {
    let short = |event: &Value| {
        let kind = event["type"].as_str().unwrap().to_ascii_lowercase();
        let what = ["delta", "toolCallId", "messageId", "stepName"].iter().find_map(|field| event[field].as_str());
        format!("{kind} {}", what.unwrap_or_default().trim_start_matches("msg_s_4_")).trim_end().to_owned()
    };
    events.iter().map(short).collect()
}

#[test]
fn steps_with_reasoning_text_and_calls_open_and_close_in_order() {
    let parts = vec![
        reasoning(1, "Hm"),
        text(1, "Let me"),
        text(1, " send."),
        reply_end(1, &["c1-1-1"]),
        result("c1-1-1"),
        text(2, "Sent."),
        reply_end(2, &[]),
        end(StopReason::Completed),
        text(3, "late"),
    ];
    let wanted = [
        "step_started step 1",
        "reasoning_start reasoning_s_4_1_1",
        "reasoning_message_start reasoning_s_4_1_1",
        "reasoning_message_content Hm",
        "reasoning_message_end reasoning_s_4_1_1",
        "reasoning_end reasoning_s_4_1_1",
        "text_message_start 1",
        "text_message_content Let me",
        "text_message_content  send.",
        "text_message_end 1",
        "tool_call_start call_s_c1-1-1",
        "tool_call_args {\"to\":\"ann\"}",
        "tool_call_end call_s_c1-1-1",
        "tool_call_result call_s_c1-1-1",
        "step_finished step 1",
        "step_started step 2",
        "text_message_start 2",
        "text_message_content Sent.",
        "text_message_end 2",
        "step_finished step 2",
        "run_finished",
    ];
    let found = events(reply(true), parts);
    assert_eq!(brief(&found), wanted);
    let usage = json!([{
        "provider": "p", "model": "m", "inputTokens": 10, "outputTokens": 4, "totalTokens": 14, "reasoningTokens": 0,
        "cachedInputTokens": 0,
    }]);
    assert_eq!(found.last().unwrap()["usage"], usage);
    assert_eq!(found[10]["parentMessageId"], found[6]["messageId"], "a call belongs to the message of its step");
}

#[test]
fn reasoning_between_two_pieces_of_text_is_a_message_of_its_own() {
    let parts = vec![
        text(1, "A"),
        reasoning(1, "Hm"),
        text(1, "B"),
        reasoning(1, "So"),
        reply_end(1, &[]),
        end(StopReason::Completed),
    ];
    let found = events(reply(true), parts);
    assert_eq!(found.iter().filter(|event| event["type"] == "REASONING_START").count(), 2);
    assert_eq!(found.iter().filter(|event| event["type"] == "TEXT_MESSAGE_START").count(), 1);
}

#[test]
fn turn_ends_as_its_stop_reason_says_and_as_the_client_can_read_it() {
    for (version, reason, wanted) in [
        (true, StopReason::Completed, json!(["RUN_FINISHED", null, "completed", null])),
        (false, StopReason::Completed, json!(["RUN_FINISHED", null, "completed", null])),
        (true, StopReason::CostLimit, json!(["RUN_FINISHED", null, "cost_limit", null])),
        (true, StopReason::Stopped, json!(["RUN_FINISHED", "cancelled", null, null])),
        (false, StopReason::Stopped, json!(["RUN_ERROR", null, null, "session_ended"])),
        (true, StopReason::Error, json!(["RUN_ERROR", null, null, "model_quota"])),
    ] {
        for before in [vec![], vec![text(1, "A")], vec![reasoning(1, "A")]] {
            let found = events(reply(version), [before, vec![end(reason)]].concat());
            let last = found.last().unwrap();
            let parts = [&last["type"], &last["outcome"]["type"], &last["result"]["stopReason"], &last["code"]];
            assert_eq!(json!(parts), wanted);
        }
    }
}

#[test]
fn run_ends_once_every_call_of_the_step_waits_for_the_client() {
    let before = vec![reply_end(1, &["c1-1-1", "c1-1-2", "c1-1-3"]), client_call("c1-1-1"), client_call("c1-1-2")];
    let parts = [before.clone(), vec![result("c1-1-3"), text(2, "late")]].concat();
    let found = events(reply(true), parts.clone());
    let outcome = json!({"type": "success", "pendingToolCallIds": ["call_s_c1-1-1", "call_s_c1-1-2"]});
    assert_eq!(found.last().unwrap()["outcome"], outcome);
    assert_eq!(found.iter().filter(|event| event["type"] == "TOOL_CALL_RESULT").count(), 1);
    let old = events(reply(false), parts);
    assert_eq!((&old.last().unwrap()["type"], old.last().unwrap().get("outcome")), (&json!("RUN_FINISHED"), None));
    let mut open = reply(true);
    open.begin();
    assert!(
        before.into_iter().flat_map(|part| open.push(part)).all(|event| !matches!(event, UiEvent::RunFinished { .. }))
    );
}

#[test]
fn gate_is_an_interrupt_once_the_other_calls_of_the_step_have_results() {
    let parts = vec![text(1, "May I?"), reply_end(1, &["c1-1-1", "c1-1-2"]), asks("c1-1-1"), result("c1-1-2")];
    let found = events(reply(false), parts);
    let [state, messages, end] = &found[found.len() - 3..] else { panic!("{found:?}") };
    assert_eq!(state["snapshot"], json!({}));
    let arguments = "{\"to\":\"ann\"}";
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "send", "arguments": arguments}});
    assert_eq!(
        messages["messages"],
        json!([
            {"id": "m1", "role": "user", "content": "Hi"},
            {"id": "msg_s_4_1", "role": "assistant", "content": "May I?",
             "toolCalls": [call("call_s_c1-1-1"), call("call_s_c1-1-2")]},
            {"id": "result_s_c1-1-2", "role": "tool", "toolCallId": "call_s_c1-1-2", "content": "done"},
        ])
    );
    let interrupt = &end["outcome"]["interrupts"][0];
    assert_eq!(interrupt["id"], "approval_s_c1-1-1_ab12");
    assert_eq!((&interrupt["toolCallId"], &interrupt["reason"]), (&json!("call_s_c1-1-1"), &json!("tool_call")));
    assert_eq!(interrupt["expiresAt"], "2096-10-02T07:06:40.000Z");
}

#[test]
fn gate_that_somebody_else_answered_interrupts_nothing() {
    let parts = vec![
        reply_end(1, &["c1-1-1", "c1-1-2"]),
        asks("c1-1-1"),
        closed("c1-1-1"),
        result("c1-1-2"),
        result("c1-1-1"),
        text(2, "Sent."),
        reply_end(2, &[]),
        end(StopReason::Completed),
    ];
    let found = events(reply(true), parts);
    assert_eq!(found.last().unwrap()["result"]["stopReason"], "completed");
}

#[test]
fn questions_limits_and_failures_say_what_they_ask() {
    let question = r#"{"question": "Which?", "choices": ["a", "b"]}"#;
    for (gate, kind, message, field, call) in [
        (gate("c1-1-1", GateKind::Question, question), "question", "Which?", "answer", true),
        (gate("limit-1-1", GateKind::Limit(StopReason::CostLimit), "{}"), "limit", "cost_limit", "approved", false),
    ] {
        let calls = if call { vec!["c1-1-1"] } else { vec![] };
        let found = events(reply(true), vec![reply_end(1, &calls), TurnPart::GateOpened(Box::new(gate))]);
        let interrupt = &found.last().unwrap()["outcome"]["interrupts"][0];
        assert_eq!(interrupt["metadata"]["kind"], kind);
        assert!(interrupt["message"].as_str().unwrap().contains(message), "{interrupt}");
        assert_eq!(interrupt["responseSchema"]["required"], json!([field]));
        assert_eq!(interrupt.get("toolCallId").is_some(), call);
    }
}

#[test]
fn result_that_the_client_brought_is_not_given_back_to_it() {
    let answered = |performer, outcome| {
        let parts =
            vec![TurnPart::Result(Box::new(result_of("c1-1-1", outcome, performer))), end(StopReason::Completed)];
        let reply = reply(true).continues(Waiting::default(), vec![id("c1-1-1")]);
        events(reply, parts)
    };
    assert_eq!(brief(&answered(Performer::Client, Outcome::Ok)), ["run_finished"]);
    let gated = answered(Performer::Fleet, Outcome::Error);
    assert_eq!(gated[0]["content"], "error tool_error: done");
    let unanswered = vec![
        TurnPart::Result(Box::new(result_of("c1-1-2", Outcome::Timeout, Performer::Client))),
        end(StopReason::Completed),
    ];
    assert_eq!(events(reply(true), unanswered)[0]["content"], "timeout: done");
}

#[test]
fn run_that_begins_while_other_calls_wait_ends_at_once() {
    let waiting = Waiting { client_calls: vec![id("c1-1-2")], ..Waiting::default() };
    let found = events(reply(true).continues(waiting, vec![id("c1-1-1")]), vec![]);
    assert_eq!(found[0]["outcome"]["pendingToolCallIds"], json!(["call_s_c1-1-2"]));
}

#[test]
fn long_text_goes_out_in_pieces_and_a_long_thread_is_not_repeated() {
    let long = "ä".repeat(AG_UI_DELTA_BYTES_MAX);
    let found = events(reply(true), vec![text(1, &long), reply_end(1, &[]), end(StopReason::Completed)]);
    let deltas: Vec<&str> = found.iter().filter_map(|event| event["delta"].as_str()).collect();
    assert_eq!((deltas.len(), deltas.concat() == long), (2, true));
    let huge = "x".repeat(AG_UI_SNAPSHOT_BYTES_MAX);
    let mut reply = reply(true);
    reply.begin();
    let parts = [text(1, &huge), reply_end(1, &["c1-1-1"]), asks("c1-1-1")];
    let last: Vec<UiEvent> = parts.into_iter().flat_map(|part| reply.push(part)).collect();
    assert!(!last.iter().any(|event| matches!(event, UiEvent::MessagesSnapshot { .. })));
    assert!(matches!(last.last(), Some(UiEvent::RunFinished { outcome: Some(RunOutcome::Interrupt { .. }), .. })));
}

#[test]
fn turn_that_cannot_be_followed_is_an_error_and_nothing_follows() {
    let mut reply = reply(true);
    let mut found = reply.begin();
    found.extend(reply.push(text(1, "A")));
    found.extend(reply.fail(&ApiError::new(ErrorCode::Draining, "connect again")));
    found.extend(reply.fail(&ApiError::new(ErrorCode::Draining, "connect again")));
    found.extend(reply.push(text(1, "B")));
    let found: Vec<Value> = found.iter().map(|event| serde_json::to_value(event).unwrap()).collect();
    event_order::check(&found).unwrap();
    assert_eq!(found.last().unwrap()["code"], "draining");
}

#[test]
fn order_that_clients_refuse_is_found() {
    let started = json!({"type": "RUN_STARTED"});
    let finished = json!({"type": "RUN_FINISHED"});
    let open = json!({"type": "TEXT_MESSAGE_START", "messageId": "m"});
    for events in [
        vec![],
        vec![finished.clone()],
        vec![started.clone()],
        vec![started.clone(), open.clone(), finished.clone()],
        vec![started.clone(), finished.clone(), finished.clone()],
        vec![
            started.clone(),
            json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "x"}),
            finished.clone(),
        ],
        vec![started.clone(), json!({"type": "CUSTOM", "name": null}), finished.clone()],
        vec![started.clone(), json!({"type": "RUN_FINISHED", "outcome": {"type": "interrupt", "interrupts": [{}]}})],
    ] {
        assert!(event_order::check(&events).is_err(), "{events:?}");
    }
}
