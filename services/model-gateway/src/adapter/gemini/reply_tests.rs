//! Responses of Google, and the replies or failures that they are read as.

#![allow(clippy::needless_pass_by_value, reason = "rows read better so")]

use contract::model::ToolCall;

use super::*;
use crate::adapter::ProviderProtocol;
use crate::adapter::testing::{self, stream};
use crate::reply::ModelReply;

fn check(events: &[Value]) -> Result<ModelReply, CallFailure> {
    testing::check(ProviderProtocol::Gemini, &stream(events))
}

fn parts(parts: Value) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}], "modelVersion": "g-1",
           "usageMetadata": {"promptTokenCount": 10, "totalTokenCount": 10}})
}

fn end(reason: &str, parts: Value) -> Value {
    json!({"candidates": [{"content": {"parts": parts}, "finishReason": reason}], "modelVersion": "g-1",
           "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 2,
                             "cachedContentTokenCount": 4, "totalTokenCount": 17}})
}

#[test]
fn stream_with_thoughts_text_and_calls_is_read() {
    let reply = check(&[
        parts(json!([{"text": "Hm", "thought": true}])),
        parts(json!([{"text": "Hel"}, {"executableCode": {"code": "1"}}])),
        parts(json!([{"text": "lo", "thoughtSignature": "dA=="}])),
        parts(json!([{"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "cw=="}])),
        end("STOP", json!([{"functionCall": {"id": "x", "name": "g"}}])),
    ])
    .unwrap();
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str(), reply.model.as_str()), ("Hello", "Hm", "g-1"));
    assert_eq!(reply.calls(), [ToolCall::new("", "f", "{\"a\":1}"), ToolCall::new("x", "g", "{}")]);
    assert_eq!(reply.usage, Some(Usage { input: 10, output: 7, cached: 4, reasoning: 2 }));
    assert_eq!(reply.finish, Some((FinishReason::ToolCalls, "STOP".to_owned())));
    let parts = reply.replay;
    assert_eq!(parts, [json!({"thoughtSignature": "dA=="}), json!({"call": 1, "thoughtSignature": "cw=="})]);
}

#[test]
fn body_or_list_of_bodies_is_read() {
    let whole = end("STOP", json!([{"text": "So."}]));
    for body in [whole.to_string(), format!("[{},{whole}]", parts(json!([{"text": ""}])))] {
        let reply = testing::check(ProviderProtocol::Gemini, &body).unwrap();
        assert_eq!((reply.text.as_str(), reply.finish.map(|finish| finish.0)), ("So.", Some(FinishReason::Stop)));
    }
    assert_eq!(testing::check(ProviderProtocol::Gemini, "{}").unwrap_err().kind, FailureKind::ProtocolError);
}

#[test]
fn end_of_a_reply_has_its_finish_reason_or_failure() {
    use FinishReason as R;
    for (raw, reason) in
        [("STOP", R::Stop), ("MAX_TOKENS", R::Length), ("SAFETY", R::ContentFilter), ("what comes to be", R::Other)]
    {
        let reply = check(&[end(raw, json!([{"text": "x"}]))]).unwrap();
        assert_eq!(reply.finish, Some((reason, raw.to_owned())));
    }
    let kind = |events: &[Value]| check(events).unwrap_err().kind;
    assert_eq!(kind(&[end("SAFETY", json!([]))]), FailureKind::Refused);
    assert_eq!(kind(&[end("MALFORMED_FUNCTION_CALL", json!([]))]), FailureKind::ProtocolError);
    assert_eq!(kind(&[json!({"promptFeedback": {"blockReason": "SAFETY"}})]), FailureKind::Refused);
    assert_eq!(kind(&[parts(json!([{"text": "x"}]))]), FailureKind::Truncated);
    let error = |code: u16, status: &str| {
        json!({"error": {"code": code, "status": status, "message": "no",
        "details": [{"@type": "x"}, {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]}})
    };
    let failure = check(&[error(429, "RESOURCE_EXHAUSTED")]).unwrap_err();
    assert_eq!(
        (failure.kind, failure.retry_after),
        (FailureKind::RateLimited, Some(std::time::Duration::from_secs(7)))
    );
    assert_eq!(kind(&[error(503, "UNAVAILABLE")]), FailureKind::Overloaded);
}
