//! Messages of chat completions, as sessions take them.

use serde_json::json;

use super::*;

fn parse(messages: &Value) -> ChatRequest {
    let body = json!({"model": "e", "messages": messages, "temperature": 1}).to_string();
    ChatRequest::parse(body.as_bytes()).unwrap()
}

fn turn(messages: &Value) -> Result<(String, Value), ApiError> {
    let turn = parse(messages).turn(false)?.with_instructions();
    Ok((turn.prompt.text(), json!(turn.history)))
}

#[test]
fn results_at_the_end_name_their_session_and_call() {
    let messages = json!([
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_chat-1_a_c1-1", "type": "function", "function": {"name": "add", "arguments": "{}"}},
        ]},
        {"role": "tool", "tool_call_id": "call_chat-1_a_c1-1", "content": "4"},
    ]);
    let results = parse(&messages).call_results();
    let found: Vec<_> = results.iter().map(|one| (one.session.as_str(), one.call.as_str(), &*one.content)).collect();
    assert_eq!(found, [("chat-1_a", "c1-1", "4")]);
    assert_eq!(edge_core::turn::call_id(&results[0].session, &results[0].call), "call_chat-1_a_c1-1");
    assert_eq!(parse(&json!([{"role": "tool", "tool_call_id": "x", "content": "4"}])).call_results(), []);
}

#[test]
fn last_user_message_is_the_prompt_and_the_rest_is_history() {
    let (prompt, history) = turn(&json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "assistant", "content": null, "tool_calls": []},
        {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
    ]))
    .unwrap();
    assert_eq!(prompt, "And now?");
    let first = "Instructions of the application:\nBe brief.\n\nMessage of the user:\nHi";
    assert_eq!(history, json!([{"role": "user", "content": first}, {"role": "assistant", "content": "Hello"}]));
}

#[test]
fn calls_and_results_of_other_servers_are_history() {
    let call = |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{\"a\":1}"}});
    let (prompt, history) = turn(&json!([
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "I look.", "tool_calls": [call("call_1", "look"), call("call_2", "see")]},
        {"role": "tool", "tool_call_id": "call_2", "content": [
            {"type": "text", "text": "a cat"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": "SECRET-42"},
        {"role": "assistant", "content": null, "function_call": {"name": "old", "arguments": "{}"}},
        {"role": "function", "name": "old", "content": "rust"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_3", "type": "custom", "custom": {"name": "patch", "input": "- a"}},
        ]},
        {"role": "user", "content": "And?"},
    ]))
    .unwrap();
    assert_eq!(prompt, "And?");
    let called = |content: &str, calls: Value| {
        let mut reply = json!({"role": "assistant", "tool_calls": calls});
        if !content.is_empty() {
            reply["content"] = json!(content);
        }
        reply
    };
    let expected = json!([
        {"role": "user", "content": "Look."},
        called("I look.", json!([
            {"name": "look", "arguments": "{\"a\":1}", "result": "SECRET-42"},
            {"name": "see", "arguments": "{\"a\":1}", "result": "a cat\n[image_url, not shown]"},
        ])),
        called("", json!([{"name": "old", "arguments": "{}", "result": "rust"}])),
        called("", json!([{"name": "patch", "arguments": "- a"}])),
    ]);
    assert_eq!(history, expected);
}

#[test]
fn request_that_no_agent_can_take_is_refused() {
    let rows = [
        (json!([]), "no message"),
        (json!([{"role": "robot", "content": "Hi"}]), "robot"),
        (json!([{"role": "user", "content": [{"type": "input_audio"}]}]), "messages[0]"),
        (
            json!([{"role": "user", "content": "Hi"}, {"role": "tool", "tool_call_id": "x", "content": "4"}]),
            "messages[1]",
        ),
    ];
    for (messages, wanted) in rows {
        let refused = turn(&messages).unwrap_err();
        assert!(refused.message.contains(wanted), "{refused}");
    }
    assert!(ChatRequest::parse(br#"{"model": "e", "messages": [], "n": 2}"#).is_err());
    let trimmed = json!([{"role": "tool", "tool_call_id": "x", "content": "4"}, {"role": "user", "content": "Hi"}]);
    assert_eq!(parse(&trimmed).turn(true).unwrap().prompt.text(), "Hi", "the session of a name knows its history");
}
