//! Responses of OpenAI, and the replies or failures that they are read as.

#![allow(clippy::needless_pass_by_value, reason = "rows read better so")]

use contract::model::ToolCall;

use super::*;
use crate::adapter::ProviderProtocol;
use crate::adapter::testing::{self, stream};
use crate::reply::ModelReply;

fn check(events: &[Value]) -> Result<ModelReply, CallFailure> {
    testing::check(ProviderProtocol::OpenaiResponses, &stream(events))
}

fn created() -> Value {
    json!({"type": "response.created", "response": {"id": "r", "model": "m-1", "status": "in_progress", "error": null, "output": []}})
}

fn completed(output: Value) -> Value {
    json!({"type": "response.completed", "response": {"model": "m-1", "status": "completed", "error": null, "output": output,
           "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 7,
                     "output_tokens_details": {"reasoning_tokens": 3}}}})
}

fn added(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": index, "item": item})
}

fn done(index: u64, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": index, "item": item})
}

fn function(id: &str, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "id": "fc", "call_id": id, "name": name, "arguments": arguments})
}

fn more(index: u64, delta: &str) -> Value {
    json!({"type": "response.function_call_arguments.delta", "output_index": index, "delta": delta})
}

#[test]
fn stream_with_reasoning_text_and_calls_is_read() {
    let reasoning = json!({"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm"}],
                           "encrypted_content": "eHh4", "status": "completed"});
    let reply = check(&[
        created(),
        added(0, json!({"type": "reasoning", "id": "rs", "summary": []})),
        json!({"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Hm"}),
        done(0, reasoning),
        added(1, json!({"type": "message", "role": "assistant", "content": []})),
        json!({"type": "response.output_text.delta", "output_index": 1, "delta": "Hel"}),
        json!({"type": "response.output_text.delta", "output_index": 1, "delta": "lo"}),
        json!({"type": "response.output_text.done", "output_index": 1, "text": "Hello"}),
        done(1, json!({"type": "message", "content": [{"type": "output_text", "text": "Hello"}]})),
        added(2, function("call_1", "f", "")),
        added(3, function("call_2", "g", "")),
        more(2, "{\"a\""),
        more(3, "{}"),
        more(2, ":1}"),
        json!({"type": "response.function_call_arguments.done", "output_index": 2, "arguments": "{\"a\":1}"}),
        done(2, function("call_1", "f", "{\"a\":1}")),
        done(3, function("call_2", "g", "{}")),
        added(4, json!({"type": "web_search_call", "id": "ws"})),
        json!({"type": "response.web_search_call.searching", "output_index": 4}),
        done(4, json!({"type": "web_search_call", "id": "ws"})),
        completed(json!([])),
    ])
    .unwrap();
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str(), reply.model.as_str()), ("Hello", "Hm", "m-1"));
    assert_eq!(reply.calls(), [ToolCall::new("call_1", "f", "{\"a\":1}"), ToolCall::new("call_2", "g", "{}")]);
    assert_eq!(reply.usage, Some(Usage { input: 10, output: 7, cached: 4, reasoning: 3 }));
    assert_eq!(reply.finish, Some((FinishReason::ToolCalls, "completed".to_owned())));
    let part = &reply.replay[0];
    assert_eq!(
        *part,
        json!({"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm"}], "encrypted_content": "eHh4"})
    );
}

#[test]
fn items_without_deltas_are_read_when_done() {
    let reply = check(&[
        created(),
        done(0, json!({"type": "message", "content": [{"type": "output_text", "text": "Hi"}, {"type": "refusal", "refusal": " no"}]})),
        done(1, function("c", "f", "{\"a\":1}")),
        completed(json!([])),
    ])
    .unwrap();
    assert_eq!(reply.text, "Hi no");
    assert_eq!(reply.calls(), [ToolCall::new("c", "f", "{\"a\":1}")]);
    // The rest of arguments of which a part was streamed.
    let reply = check(&[
        created(),
        added(0, function("c", "f", "")),
        more(0, "{\"a\""),
        done(0, function("c", "f", "{\"a\":1}")),
        completed(json!([])),
    ]);
    assert_eq!(reply.unwrap().calls(), [ToolCall::new("c", "f", "{\"a\":1}")]);
}

#[test]
fn call_with_contradicting_arguments_is_a_protocol_error() {
    let events = [
        created(),
        added(0, function("c", "f", "")),
        more(0, "{\"a\":2"),
        done(0, function("c", "f", "{\"a\":1}")),
        completed(json!([])),
    ];
    assert_eq!(check(&events).unwrap_err().kind, FailureKind::ProtocolError);
}

#[test]
fn body_without_a_stream_is_read() {
    let body = json!({"object": "response", "status": "completed", "model": "m-1", "error": null, "output": [
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "Hm"}], "encrypted_content": "eA"},
        {"type": "message", "content": [{"type": "output_text", "text": "So."}]}, function("c", "f", "{}")],
        "usage": {"input_tokens": 3, "output_tokens": 4}});
    let reply = testing::check(ProviderProtocol::OpenaiResponses, &body.to_string()).unwrap();
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str(), reply.replay.len()), ("So.", "Hm", 1));
    assert_eq!((reply.calls(), reply.usage.map(Usage::total)), (vec![ToolCall::new("c", "f", "{}")], Some(7)));
    assert_eq!(testing::check(ProviderProtocol::OpenaiResponses, "{}").unwrap_err().kind, FailureKind::ProtocolError);
}

#[test]
fn end_of_a_reply_has_its_finish_reason_or_failure() {
    let text = || json!({"type": "response.output_text.delta", "output_index": 0, "delta": "x"});
    let incomplete = |why: &str| json!({"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": {"reason": why}}});
    let finish = |events: &[Value]| check(events).map(|reply| reply.finish.unwrap().0).map_err(|failure| failure.kind);
    assert_eq!(finish(&[created(), text(), incomplete("max_output_tokens")]), Ok(FinishReason::Length));
    assert_eq!(finish(&[created(), text(), incomplete("content_filter")]), Ok(FinishReason::ContentFilter));
    assert_eq!(finish(&[created(), incomplete("content_filter")]), Err(FailureKind::Refused));
    let failed = |code: &str| json!({"type": "response.failed", "response": {"status": "failed", "error": {"code": code, "message": "no"}}});
    assert_eq!(finish(&[created(), text(), failed("server_error")]), Err(FailureKind::Unreachable));
    assert_eq!(finish(&[created(), failed("rate_limit_exceeded")]), Err(FailureKind::RateLimited));
    let error = json!({"type": "error", "code": "context_length_exceeded", "message": "no", "param": null});
    assert_eq!(finish(&[created(), error]), Err(FailureKind::ContextLength));
    assert_eq!(finish(&[created(), text()]), Err(FailureKind::Truncated));
}
