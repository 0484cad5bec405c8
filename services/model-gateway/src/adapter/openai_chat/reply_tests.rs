//! Responses of providers, byte for byte, and the replies or failures that they are read as.

use contract::model::{FinishReason, ToolCall, Usage};

use super::*;
use crate::adapter::{ProviderProtocol, testing};
use crate::reply::ModelReply;

fn check(body: &str) -> Result<ModelReply, CallFailure> {
    testing::check(ProviderProtocol::OpenaiChat, body)
}

fn stream(events: &[&str]) -> String {
    events.iter().fold(String::new(), |stream, event| stream + "data: " + event + "\n\n")
}

fn kind(body: &str) -> FailureKind {
    check(body).map(|reply| panic!("a reply: {reply:?}")).unwrap_err().kind
}

const TEXT: &str = r#"{"model":"m-1","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"}}]}"#;
const STOP: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const CALLS: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#;

fn delta(call: &str) -> String {
    format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{call}]}}}}]}}"#)
}

/// The calls of a stream of fragments that ends properly.
fn calls(fragments: &[&str]) -> Vec<ToolCall> {
    let mut events: Vec<String> = fragments.iter().map(|fragment| delta(fragment)).collect();
    events.extend([CALLS.to_owned(), "[DONE]".to_owned()]);
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    check(&stream(&events)).unwrap().calls()
}

#[test]
fn stream_with_text_reasoning_and_usage_is_read() {
    let reply = check(&stream(&[
        r#"{"choices":[],"prompt_filter_results":[]}"#,
        r#"{"model":"m-1","service_tier":"on_demand","choices":[{"index":0,"delta":{"reasoning_content":"Hm"}}]}"#,
        TEXT,
        r#"{"choices":[{"index":1,"delta":{"content":"another choice"}},{"delta":{"content":" you"},"x":{}}]}"#,
        STOP,
        r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}"#,
        "[DONE]",
    ]))
    .unwrap();
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str(), reply.model.as_str()), ("Hello you", "Hm", "m-1"));
    assert_eq!(reply.usage, Some(Usage { input: 9, output: 3, cached: 0, reasoning: 0 }));
    assert_eq!(reply.finish, Some((FinishReason::Stop, "stop".to_owned())));
}

#[test]
fn calls_with_each_numbering_are_assembled() {
    let two = [ToolCall::new("a", "f", "{\"x\":1}"), ToolCall::new("b", "g", "{}")];
    // Interleaved, id and name only first.
    let rows: &[&[&str]] = &[
        &[
            r#"{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}}"#,
            r#"{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":"{"}}"#,
            r#"{"index":0,"function":{"arguments":"{\"x\""}}"#,
            r#"{"index":1,"function":{"arguments":"}"}}"#,
            r#"{"index":0,"function":{"arguments":":1}"}}"#,
        ],
        // Indices that begin at 1; two fragments in one event; a null name.
        &[
            r#"{"index":1,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}},{"index":2,"id":"b","function":{"name":"g","arguments":"{"}}"#,
            r#"{"index":2,"function":{"name":null,"arguments":"}"}}"#,
        ],
        // No index; arguments as an object; no arguments.
        &[r#"{"id":"a","function":{"name":"f","arguments":{"x":1}}}"#, r#"{"id":"b","function":{"name":"g"}}"#],
        // Always index 0.
        &[
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":1}"}}"#,
            r#"{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}"#,
        ],
        // A fresh id per fragment, an empty name.
        &[
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}"#,
            r#"{"index":0,"id":"a2","function":{"name":"","arguments":":1}"}}"#,
            r#"{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}"#,
        ],
    ];
    for row in rows {
        assert_eq!(calls(row), two, "{row:?}");
    }
}

#[test]
fn call_without_a_name_or_with_broken_arguments_is_unchanged() {
    let got = calls(&[r#"{"index":0,"id":"a","function":{"arguments":"{\"x\":"}}"#]);
    assert_eq!(got, [ToolCall::new("a", "", "{\"x\":")]);
}

#[test]
fn complete_calls_with_any_finish_reason_are_kept() {
    let call = delta(r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}"#);
    for (end, reason) in [
        (STOP.to_owned(), FinishReason::Stop),
        (STOP.replace("stop", "length"), FinishReason::Length),
        (STOP.replace("stop", "a_new_word"), FinishReason::Other),
    ] {
        let reply = check(&stream(&[&call, &end])).unwrap();
        assert_eq!(reply.calls(), [ToolCall::new("a", "f", "{}")]);
        assert_eq!(reply.finish.unwrap().0, reason);
    }
}

#[test]
fn stream_with_each_valid_end_is_complete() {
    // Without `[DONE]`, without a last blank line, with an empty reason before the real one.
    for body in [
        stream(&[TEXT, STOP]),
        format!("data: {TEXT}\n\ndata: {STOP}"),
        format!("data: {TEXT}\r\n\r\ndata: {STOP}\r\n"),
        stream(&[&TEXT.replace("}]}", r#","finish_reason":""}]}"#), STOP, "[DONE]"]),
        format!(": ping\n\n{}", stream(&[TEXT, STOP, "[DONE]", "not read any more"])),
        stream(&[TEXT, STOP, r#"{"error":{"message":"too late"}}"#]),
    ] {
        assert_eq!(check(&body).unwrap().text, "Hello", "{body}");
    }
    // A server that never gives a reason.
    let reply = check(&stream(&[TEXT, "[DONE]"])).unwrap();
    assert_eq!(reply.finish, Some((FinishReason::Other, String::new())));
}

#[test]
fn stream_cut_is_truncated() {
    let call = delta(r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\""}}"#);
    for body in [
        String::new(),
        "\n\n".to_owned(),
        ": ping\n\n".to_owned(),
        stream(&[TEXT]),
        stream(&[&call]),
        stream(&["[DONE]"]),
        stream(&[r#"{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0}}"#, "[DONE]"]),
        format!("{}data: {{\"choices\":[{{\"delta\":{{", stream(&[TEXT])),
    ] {
        assert_eq!(kind(&body), FailureKind::Truncated, "{body}");
    }
    assert_eq!(kind(r#"{"choices":[{"message":{"content":"Hel"#), FailureKind::Truncated);
}

#[test]
fn body_of_another_protocol_is_a_protocol_error() {
    for body in [
        "<!DOCTYPE html><html>login</html>".to_owned(),
        "\n <html>".to_owned(),
        "OK".to_owned(),
        "\"OK\"".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        "{\"message\":{}}\n{\"message\":{}}".to_owned(),
        r#"{"choices":[]}"#.to_owned(),
        r#"{"choices":[{"text":"an older protocol"}]}"#.to_owned(),
        stream(&["not json"]),
        stream(&["7"]),
        format!("{}data: {{\"choices\":\n\ndata: []\n\n", stream(&[TEXT])),
    ] {
        assert_eq!(kind(&body), FailureKind::ProtocolError, "{body}");
    }
}

#[test]
fn event_with_an_odd_shape_is_ignored() {
    for odd in [
        r#"{"choices":null}"#,
        r#"{"choices":[null]}"#,
        r#"{"choices":[{"delta":null}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":null,"tool_calls":null}}]}"#,
        r#"{"choices":[{"index":0,"delta":{"content":7,"tool_calls":[{}, 5][0]}}]}"#,
        r#"{"type":"ping","usage":"none","model":7}"#,
    ] {
        if serde_json::from_str::<Value>(odd).is_ok() {
            let reply = check(&stream(&[odd, TEXT, STOP])).unwrap();
            assert_eq!((reply.text.as_str(), reply.calls().len()), ("Hello", 0), "{odd}");
        }
    }
}

#[test]
fn error_in_a_stream_has_its_kind() {
    let error = r#"{"error":{"code":429,"message":"slow down"}}"#;
    assert_eq!(kind(&stream(&[TEXT, error])), FailureKind::RateLimited);
    assert_eq!(kind(&format!("event: error\ndata: {error}\n\n")), FailureKind::RateLimited);
    assert_eq!(kind(&stream(&[TEXT, r#"{"error":{"message":"x"}}"#])), FailureKind::Unreachable);
    assert_eq!(kind(&stream(&[TEXT, &STOP.replace("stop", "error")])), FailureKind::Unreachable);
    assert_eq!(kind(error), FailureKind::RateLimited);
}

#[test]
fn content_filter_before_content_is_refused() {
    let filter = STOP.replace("stop", "content_filter");
    assert_eq!(kind(&stream(&[&filter])), FailureKind::Refused);
    assert_eq!(check(&stream(&[TEXT, &filter])).unwrap().finish.unwrap().0, FinishReason::ContentFilter);
    let refusal = r#"{"choices":[{"index":0,"delta":{"refusal":"I will not."}}]}"#;
    assert_eq!(check(&stream(&[refusal, STOP])).unwrap().text, "I will not.");
}

#[test]
fn body_with_reasoning_and_calls_is_read() {
    let body = r#"{"id":"x","model":"m-1","choices":[{"index":0,"message":{"role":"assistant","content":null,
        "reasoning":"Hm","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},
        {"id":"b","function":{"name":"g","arguments":"{}"}}]},"finish_reason":"tool_calls"}],
        "usage":{"prompt_tokens":9,"completion_tokens":3}}"#;
    let reply = check(body).unwrap();
    assert_eq!(reply.calls(), [ToolCall::new("a", "f", "{\"x\":1}"), ToolCall::new("b", "g", "{}")]);
    assert_eq!((reply.text.as_str(), reply.reasoning.as_str(), reply.model.as_str()), ("", "Hm", "m-1"));
    assert_eq!(reply.usage.unwrap().total(), 12);
    assert_eq!(reply.finish, Some((FinishReason::ToolCalls, "tool_calls".to_owned())));
    let bare = check(r#" {"choices":[{"message":{"content":"Hello"}}]}"#).unwrap();
    assert_eq!((bare.text.as_str(), bare.finish), ("Hello", Some((FinishReason::Other, String::new()))));
}

#[test]
fn white_space_before_a_stream_is_skipped() {
    let stream = "\t\n data: {\"choices\":[{\"delta\":{\"content\":\"so\"},\"finish_reason\":\"stop\"}]}\n\n";
    assert_eq!(testing::check(ProviderProtocol::OpenaiChat, stream).unwrap().text, "so");
}
