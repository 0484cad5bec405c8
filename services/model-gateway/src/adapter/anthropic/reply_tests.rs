//! Responses of Anthropic, and the replies or failures that they are read as.

#![allow(clippy::needless_pass_by_value, reason = "rows read better so")]

use contract::model::{FailureKind, ToolCall};

use super::*;
use crate::adapter::testing::{self, stream};
use crate::adapter::{ProviderProtocol, anthropic::REASONING_NAME};
use crate::reply::ModelReply;

fn check(events: &[Value]) -> Result<ModelReply, CallFailure> {
    testing::check(ProviderProtocol::Anthropic, &stream(events))
}

fn start() -> Value {
    json!({"type": "message_start", "message": {"type": "message", "role": "assistant", "model": "c-1", "content": [],
           "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2, "output_tokens": 1}}})
}

fn begin(index: u64, block: Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn over(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn end(reason: &str) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null}, "usage": {"output_tokens": 20}}),
        json!({"type": "message_stop"}),
    ]
}

#[test]
fn stream_with_thoughts_text_and_calls_is_read() {
    let [last, stop] = end("tool_use");
    let reply = check(&[
        start(),
        begin(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        json!({"type": "ping"}),
        delta(0, json!({"type": "thinking_delta", "thinking": "Hm"})),
        delta(0, json!({"type": "signature_delta", "signature": "c2ln"})),
        over(0),
        begin(1, json!({"type": "redacted_thinking", "data": "eHh4"})),
        over(1),
        begin(2, json!({"type": "text", "text": ""})),
        delta(2, json!({"type": "text_delta", "text": "Hel"})),
        delta(2, json!({"type": "citations_delta", "citation": {"type": "char_location"}})),
        delta(2, json!({"type": "text_delta", "text": "lo"})),
        over(2),
        begin(3, json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}})),
        delta(3, json!({"type": "input_json_delta", "partial_json": ""})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "{\"a\":"})),
        // Interleaved calls are not known to be sent, but must not be mixed up.
        begin(4, json!({"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "1}"})),
        over(3),
        over(4),
        begin(5, json!({"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}})),
        delta(5, json!({"type": "input_json_delta", "partial_json": "{\"q\":1}"})),
        over(5),
        begin(6, json!({"type": "something_new", "x": 1})),
        delta(6, json!({"type": "new_delta"})),
        json!({"type": "new_event"}),
        last,
        stop,
    ])
    .unwrap();
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str(), reply.model.as_str()), ("Hello", "Hm", "c-1"));
    assert_eq!(reply.calls(), [ToolCall::new("toolu_1", "f", "{\"a\":1}"), ToolCall::new("toolu_2", "g", "{}")]);
    assert_eq!(reply.usage, Some(Usage { input: 17, output: 20, cached: 5, reasoning: 0 }));
    assert_eq!(reply.finish, Some((FinishReason::ToolCalls, "tool_use".to_owned())));
    let parts = reply.replay;
    assert_eq!(
        parts,
        [
            json!({"type": "thinking", "thinking": "Hm", "signature": "c2ln"}),
            json!({"type": "redacted_thinking", "data": "eHh4"})
        ]
    );
    assert_eq!(ProviderProtocol::Anthropic.reasoning_name(), Some(REASONING_NAME));
}

#[test]
fn body_without_a_stream_is_read() {
    let body = json!({"type": "message", "model": "c-1", "stop_reason": "tool_use", "content": [
        {"type": "thinking", "thinking": "Hm", "signature": "c2ln"}, {"type": "text", "text": "So."},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1]}}],
        "usage": {"input_tokens": 3, "output_tokens": 4}});
    let reply = testing::check(ProviderProtocol::Anthropic, &body.to_string()).unwrap();
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str()), ("So.", "Hm"));
    assert_eq!(reply.calls(), [ToolCall::new("t", "f", "{\"a\":[1]}")]);
    assert_eq!((reply.replay.len(), reply.usage.map(Usage::total)), (1, Some(7)));
}

#[test]
fn stop_reason_is_mapped() {
    use FinishReason as R;
    for (raw, reason) in [
        ("end_turn", R::Stop),
        ("stop_sequence", R::Stop),
        ("max_tokens", R::Length),
        ("model_context_window_exceeded", R::Length),
        ("refusal", R::ContentFilter),
        ("pause_turn", R::Other),
        ("what comes to be", R::Other),
    ] {
        let [last, stop] = end(raw);
        let text = begin(0, json!({"type": "text", "text": "x"}));
        let reply = check(&[start(), text, over(0), last, stop]).unwrap();
        assert_eq!(reply.finish, Some((reason, raw.to_owned())));
    }
    let [last, stop] = end("refusal");
    assert_eq!(check(&[start(), last, stop]).unwrap_err().kind, FailureKind::Refused);
}

#[test]
fn error_event_has_its_kind() {
    for (kind, expected) in [
        ("overloaded_error", FailureKind::Overloaded),
        ("rate_limit_error", FailureKind::RateLimited),
        ("authentication_error", FailureKind::Auth),
        ("api_error", FailureKind::Unreachable),
        ("invalid_request_error", FailureKind::BadRequest),
        ("what comes to be", FailureKind::Unreachable),
    ] {
        let error = json!({"type": "error", "error": {"type": kind, "message": "no"}});
        assert_eq!(check(&[start(), error]).unwrap_err().kind, expected, "{kind}");
    }
}

#[test]
fn stream_cut_before_its_stop_reason_is_truncated() {
    let [last, stop] = end("tool_use");
    let whole = stream(&[
        start(),
        begin(0, json!({"type": "tool_use", "id": "t", "name": "f", "input": {}})),
        delta(0, json!({"type": "input_json_delta", "partial_json": "{\"a\":1"})),
        delta(0, json!({"type": "input_json_delta", "partial_json": "}"})),
        over(0),
        last.clone(),
        stop,
    ]);
    let complete = whole.find("message_delta").unwrap() + "message_delta\ndata: ".len() + last.to_string().len();
    for at in 0..whole.len() {
        let read = testing::cut(ProviderProtocol::Anthropic, &whole, at);
        assert_eq!(read.is_ok(), at >= complete, "cut at {at}");
        if let Err(failure) = read {
            assert_eq!(failure.kind, FailureKind::Truncated, "cut at {at}");
        }
    }
}
