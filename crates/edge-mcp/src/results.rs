//! Result of a call: the answer of a turn, the gates that wait for a person, or a failure with its stable code.

use std::fmt::Write as _;

use contract::SessionId;
use contract::commit::OpenGate;
use contract::spent::Spent;
use edge_core::api_error::ApiError;
use edge_core::turn::TurnOutcome;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use super::elicitation::describe;

/// Bytes of arguments in the text of a result; the structured part has more of them.
const SHOWN_BYTES_MAX: usize = 2 << 10;

/// Returns the result of a turn that ended. `streamed` is the text of its last step.
pub(super) fn of_turn(session: &SessionId, end: &TurnOutcome, streamed: String) -> CallToolResult {
    let answer = if end.final_response.is_empty() { streamed } else { end.final_response.clone() };
    if let Some(error) = end.failure(!answer.is_empty()) {
        return of_error(&error, Some(session));
    }
    let mut content = json!({
        "session_id": session, "state": "ended", "stop_reason": end.stop_reason, "answer": answer,
        "usage": usage(&end.spent),
    });
    // A session that ended outside of a turn has none.
    if end.turn > 0 {
        content["turn"] = json!(end.turn);
    }
    result(answer, content, false)
}

/// Returns the result of a turn that waits for a person whom the client cannot ask, or did not.
pub(super) fn of_gates(session: &SessionId, gates: &[OpenGate]) -> CallToolResult {
    let mut text = format!("The session {session} waits for a person.\n");
    for gate in gates {
        let OpenGate { gate: id, arguments_sha256, .. } = gate;
        let about = shorten(describe(gate));
        // Writing to a text cannot fail.
        let _ = writeln!(text, "- gate {id} (arguments_sha256 {arguments_sha256}): {about}");
    }
    text.push_str(
        "Ask the person to answer: in the console, with `ailoop approvals`, or to you if you have the tool \
         `answer_gate`. The session goes on by itself once somebody answers; `session_status` shows its state.",
    );
    result(text, json!({"session_id": session, "state": "waiting", "gates": gates}), false)
}

/// Returns the result of a call that failed.
pub(super) fn of_error(error: &ApiError, session: Option<&SessionId>) -> CallToolResult {
    let mut content = json!({"code": error.code, "message": error.message});
    if let Some(session) = session {
        content["session_id"] = json!(session);
    }
    if let Some(after) = error.retry_after {
        content["retry_after_ms"] = json!(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
    }
    result(format!("{} ({})", error.message, error.code.as_str()), content, true)
}

/// Returns the result of a tool that is no agent.
pub(super) fn of_value(content: Value) -> CallToolResult {
    result(content.to_string(), content, false)
}

fn result(text: String, content: Value, is_error: bool) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(content);
    result.is_error = Some(is_error);
    result
}

fn usage(spent: &Spent) -> Value {
    let used = &spent.usage;
    json!({"input_tokens": used.input, "output_tokens": used.output, "cost_usd": spent.cost_usd})
}

fn shorten(mut text: String) -> String {
    if text.len() > SHOWN_BYTES_MAX {
        text.truncate(text.floor_char_boundary(SHOWN_BYTES_MAX));
        text.push('…');
    }
    text
}
