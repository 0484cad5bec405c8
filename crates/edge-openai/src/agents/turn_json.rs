//! Turns of a session in the form of the Agents API.

use contract::event::{StopKind, StopReason};
use contract::{ErrorCode, SessionId, Timestamp};
use edge_core::turn::TurnOutcome;
use serde_json::{Value, json};

use crate::responses::items::usage;

/// Makes the turn while it runs.
pub(super) fn running(id: &str, session: &SessionId, agent: &str, created: Timestamp) -> Value {
    let created = seconds(created);
    json!({
        "id": id, "object": "agent.session.turn", "session_id": session, "agent_id": agent, "subagent_id": null,
        "status": "in_progress", "created_at": created, "started_at": created, "completed_at": null, "error": null,
        "usage": null,
    })
}

/// Completes a turn that ran with its end.
pub(super) fn complete(mut turn: Value, end: &TurnOutcome, time: Timestamp) -> Value {
    let status = status(end.stop_reason);
    turn["status"] = json!(status);
    turn["completed_at"] = json!(seconds(time));
    turn["usage"] = usage(&end.spent);
    if status == "failed" {
        turn["error"] = error(end);
    }
    turn
}

/// Returns the status of a turn that ended: one that reached a limit has no answer that anybody may rely on.
pub(super) fn status(reason: StopReason) -> &'static str {
    match reason.kind() {
        StopKind::Completed => "completed",
        StopKind::Stopped => "cancelled",
        StopKind::Limit | StopKind::Error => "failed",
    }
}

/// Returns why a turn failed. The protocol has its own codes; the message begins with the stable one.
fn error(end: &TurnOutcome) -> Value {
    if let Some((code, message)) = &end.error {
        return json!({"code": error_code(code), "message": format!("{}: {message}", code.as_str())});
    }
    let reason = end.stop_reason.as_str();
    let code = match end.stop_reason {
        StopReason::TokenLimit => "max_output_tokens",
        StopReason::Timeout => "request_timeout",
        StopReason::CostLimit | StopReason::MaxIterations | StopReason::ToolCallLimit => "usage_limit_exceeded",
        StopReason::Completed
        | StopReason::Repetition
        | StopReason::NoProgress
        | StopReason::Stopped
        | StopReason::Error => "internal_error",
    };
    json!({"code": code, "message": format!("{reason}: the turn ended without a complete answer")})
}

fn error_code(code: &ErrorCode) -> &'static str {
    match code.as_str() {
        "model_overloaded" => "server_overloaded",
        "model_rate_limited" => "rate_limit_exceeded",
        "model_context_length" => "context_length_exceeded",
        "model_bad_request" => "invalid_request",
        _ => "internal_error",
    }
}

/// Returns a time in seconds.
pub(super) fn seconds(time: Timestamp) -> u64 {
    time.as_millis() / 1_000
}
