//! Turns that wait for a person: a call of the tool `send`, and what follows from the answer.

use contract::command::{Answer, AnswerDecision};
use contract::event::{Event, GateClosed, GateKind, GateOpened, ToolCallIdentified, ToolCallResult};
use contract::model::ToolCall;
use contract::tool::{ApprovalPolicy, EffectClass, Outcome, arguments_sha256};
use contract::{CallId, Json, Timestamp, ToolName};

use super::events::ai_full_received;

const ARGUMENTS: &str = "{\"to\":\"ann\"}";

fn call() -> CallId {
    CallId::new("c1-1-1").unwrap()
}

/// The events of a turn that waits for an approval.
pub(crate) fn reply_with_approval(turn: u32) -> Vec<Event> {
    let arguments = Json::parse(ARGUMENTS).unwrap();
    let identified = ToolCallIdentified {
        call: call(),
        tool: ToolName::new("send").unwrap(),
        arguments: arguments.clone(),
        effect: EffectClass::AtMostOnce,
        approval: ApprovalPolicy::Always,
        timeout_ms: 1_000,
        max_output: 1_024,
        performer: contract::client_tool::Performer::Fleet,
    };
    let opened = GateOpened {
        gate: call(),
        kind: GateKind::Approval,
        arguments_sha256: arguments_sha256(&arguments),
        expires: Timestamp::from_millis(4_000_000_000_000),
        tool: Some(ToolName::new("send").unwrap()),
        arguments: Some(arguments),
        on_expiry: contract::settings::OnExpiry::Deny,
    };
    let reply = ai_full_received(turn, "May I?", vec![ToolCall::new("c1-1-1", "send", ARGUMENTS)]);
    vec![reply, Event::ToolCallIdentified(identified), Event::GateOpened(opened)]
}

/// The events that follow from an answer.
pub(super) fn after_answer(answer: &Answer) -> Vec<Event> {
    let closed = GateClosed {
        gate: call(),
        decision: answer.decision,
        by: None,
        arguments: answer.arguments.clone(),
        arguments_sha256: answer.arguments.as_ref().map(arguments_sha256),
        note: answer.note.clone(),
    };
    let is_approved = answer.decision == AnswerDecision::Approve;
    let result = ToolCallResult {
        call: call(),
        tool: "send".to_owned(),
        outcome: if is_approved { Outcome::Ok } else { Outcome::Denied },
        content: if is_approved { "sent" } else { "a person said no" }.to_owned(),
        code: None,
        duration_ms: 1,
        whole: None,
        used: None,
        replaces: false,
        performer: contract::client_tool::Performer::Fleet,
        by: None,
    };
    vec![Event::GateClosed(closed), Event::ToolCallResult(result)]
}
