//! Stop reason of a turn, in the terms of the protocol. Pure.

use contract::ErrorCode;
use contract::event::{StopKind, StopReason};
use serde_json::{Value, json};

use super::translate::TurnResult;
use super::wire::RpcError;

/// Makes the answer to a prompt whose turn has ended.
pub(super) fn prompt_answer(turn: &TurnResult) -> Result<Value, RpcError> {
    let reason = match (turn.stop_reason.kind(), &turn.error) {
        (StopKind::Completed, _) => "end_turn",
        // The protocol knows two limits; what is no limit of tokens is one of requests.
        (StopKind::Limit, _) if turn.stop_reason == StopReason::TokenLimit => "max_tokens",
        (StopKind::Limit, _) => "max_turn_requests",
        (StopKind::Stopped, _) => "cancelled",
        (StopKind::Error, Some((ErrorCode::ModelRefused, _))) => "refusal",
        (StopKind::Error, Some((code, message))) => return Err(RpcError::new(code.clone(), message)),
        (StopKind::Error, None) => return Err(RpcError::new(ErrorCode::Internal, "the turn ended with an error")),
    };
    Ok(json!({"stopReason": reason, "_meta": {"ailoop": {"stop_reason": turn.stop_reason.as_str()}}}))
}

/// The answer to a prompt that the person cancelled.
pub(super) fn cancelled() -> Value {
    json!({"stopReason": "cancelled"})
}

/// The answer to a prompt whose turn waits for another prompt.
pub(super) fn waiting() -> Value {
    json!({"stopReason": "end_turn", "_meta": {"ailoop": {"waits_for": "answer"}}})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_reason_is_the_nearest_one_of_the_protocol() {
        let refused = Some((ErrorCode::ModelRefused, "no".to_owned()));
        let failed = Some((ErrorCode::ModelAuth, "no".to_owned()));
        for (stop_reason, error, expect) in [
            (StopReason::Completed, None, Ok("end_turn")),
            (StopReason::TokenLimit, None, Ok("max_tokens")),
            (StopReason::MaxIterations, None, Ok("max_turn_requests")),
            (StopReason::Timeout, None, Ok("max_turn_requests")),
            (StopReason::Stopped, None, Ok("cancelled")),
            (StopReason::Error, refused, Ok("refusal")),
            (StopReason::Error, failed, Err(ErrorCode::ModelAuth)),
            (StopReason::Error, None, Err(ErrorCode::Internal)),
        ] {
            let answer = prompt_answer(&TurnResult { stop_reason, error });
            match expect {
                Ok(reason) => assert_eq!(answer.unwrap()["stopReason"], reason, "{stop_reason:?}"),
                Err(code) => assert!(format!("{answer:?}").contains(&format!("{code:?}")), "{answer:?}"),
            }
        }
    }
}
