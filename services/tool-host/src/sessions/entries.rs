//! Entries about sessions for models; each fits into a result.

use contract::commit::{Commit, SessionSummary};
use contract::event::Event;
use serde_json::{Value, json};
use session::readable::{ReadableCall, ReadableMessage, shortened, turns};

/// Bytes of a text in an entry.
const TEXT_BYTES_MAX: usize = 8 << 10;
/// Bytes of a call's arguments, and of its result.
const CALL_BYTES_MAX: usize = 1 << 10;
/// Calls of one reply in an entry.
const CALLS_MAX: usize = 12;

/// Summarizes a session for the list.
pub(super) fn summarize_session(summary: &SessionSummary) -> Value {
    json!({
        "session": summary.session_id, "agent": summary.agent, "model": summary.model, "phase": summary.phase,
        "title": summary.title, "turn": summary.turn, "stop_reason": summary.stop_reason, "started": summary.started,
        "updated": summary.updated, "cost_usd": summary.spent.cost_usd,
        "cost_usd_own": summary.spent_own.map(|own| own.cost_usd),
    })
}

/// Lists the messages and calls of a session.
pub(super) fn list_messages(commits: &[Commit]) -> Vec<Value> {
    let turns = turns(commits);
    let mut entries = Vec::new();
    for turn in &turns {
        entries.extend(turn.messages.iter().map(|message| message_entry(turn.turn, message)));
        if let Some(reason) = turn.stop_reason {
            entries.push(json!({"turn": turn.turn, "ended": reason}));
        }
    }
    entries
}

fn message_entry(turn: u32, message: &ReadableMessage) -> Value {
    match message {
        ReadableMessage::User { time, text, .. } => {
            json!({"turn": turn, "time": time, "role": "user", "text": shortened(text, TEXT_BYTES_MAX)})
        }
        ReadableMessage::Assistant { time, step, text, cut, tool_calls } => {
            let calls: Vec<Value> = tool_calls.iter().take(CALLS_MAX).map(call_entry).collect();
            let mut entry = json!({
                "turn": turn, "step": step, "time": time, "role": "assistant", "text": shortened(text, TEXT_BYTES_MAX),
                "tool_calls": calls,
            });
            if *cut {
                entry["cut"] = true.into();
            }
            if tool_calls.len() > CALLS_MAX {
                entry["more_tool_calls"] = (tool_calls.len() - CALLS_MAX).into();
            }
            entry
        }
    }
}

fn call_entry(call: &ReadableCall) -> Value {
    json!({
        "id": call.id, "tool": call.tool, "arguments": shortened(&call.arguments, CALL_BYTES_MAX),
        "outcome": call.outcome, "result": call.result.as_deref().map(|result| shortened(result, CALL_BYTES_MAX)),
        "decision": call.decision, "by": call.by,
    })
}

/// Lists the decisions and errors of a session.
pub(super) fn list_decisions(commits: &[Commit]) -> Vec<Value> {
    let mut entries = Vec::new();
    for commit in commits {
        let time = commit.meta.time;
        for event in &commit.events {
            entries.extend(decision_entry(event).map(|mut entry| {
                entry["time"] = json!(time);
                entry
            }));
        }
    }
    entries
}

#[allow(clippy::wildcard_enum_match_arm, reason = "most events decide nothing")]
fn decision_entry(event: &Event) -> Option<Value> {
    Some(match event {
        Event::ContinuationProgress(made) => json!({
            "turn": made.turn, "step": made.iteration, "of": made.max_iterations, "continues": made.continues,
            "source": made.source.to_string(), "reason": shortened(&made.reason, CALL_BYTES_MAX), "status": made.status,
            "confidence": made.confidence, "reply": made.excerpt, "tools": made.current_tools,
        }),
        Event::LimitReached(reached) => json!({"limit": reached.limit}),
        Event::ModelCallFailed(failed) => json!({
            "model_call": failed.call, "attempt": failed.attempt, "failed": failed.kind,
            "why": shortened(&failed.message, CALL_BYTES_MAX), "tried_again": failed.retry_at,
        }),
        Event::ModelFellBack(fallen) => json!({"fell_back_to": fallen.model}),
        Event::GateOpened(opened) => json!({"gate": opened.gate, "asked": opened.kind, "expires": opened.expires}),
        Event::GateClosed(closed) => json!({"gate": closed.gate, "decision": closed.decision, "by": closed.by}),
        Event::StatusPaused(changed) => json!({"paused_by": changed.by, "why": changed.reason}),
        Event::StatusResumed(changed) => json!({"resumed_by": changed.by, "why": changed.reason}),
        Event::TurnCompleted(completed) => json!({
            "turn": completed.turn, "ended": completed.stop_reason, "steps": completed.iterations,
            "cost_usd": completed.spent.cost_usd,
        }),
        Event::SessionEnded(ended) => json!({"session_ended": ended.reason, "by": ended.by, "why": ended.note}),
        Event::Error(error) => json!({
            "error": error.code, "why": shortened(&error.message, CALL_BYTES_MAX), "during": error.during,
        }),
        _ => return None,
    })
}
