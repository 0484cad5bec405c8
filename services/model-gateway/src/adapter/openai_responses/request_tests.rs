use contract::Json;
use serde_json::{Value, json};

use super::*;
use crate::adapter::testing::target_of;
use crate::adapter::transcript::tests::{conversation, item};

#[test]
fn conversation_with_each_kind_of_message_is_converted() {
    let mut item = item();
    let reasoning = json!({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "eA"});
    item.messages = conversation(super::REASONING_NAME, reasoning.clone());
    item.parameters = serde_json::from_value(json!({"temperature": 0.5, "max_tokens": 9, "reasoning_effort": "low", "tool_choice": {"type": "function", "function": {"name": "f"}}})).unwrap();
    item.response_format = Some(Json::of(
        &json!({"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": {"type": "object"}}}),
    ));
    let outgoing = build_request(&item, &target_of(&item, "upstream")).unwrap();
    assert_eq!(outgoing.path, "/responses");
    let expected = json!({
        "model": "upstream", "stream": true, "store": false, "include": ["reasoning.encrypted_content"], "temperature": 0.5,
        "max_output_tokens": 9, "reasoning": {"effort": "low"}, "parallel_tool_calls": true,
        "tool_choice": {"type": "function", "name": "f"},
        "text": {"format": {"type": "json_schema", "name": "n", "strict": true, "schema": {"type": "object"}}},
        "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": false}],
        "input": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
                {"type": "input_image", "image_url": "https://example.org/a.png"},
            ]},
            reasoning,
            {"role": "assistant", "content": "So"},
            {"type": "function_call", "call_id": "c1-1-1", "name": "f", "arguments": "{\"a\":1}"},
            {"type": "function_call", "call_id": "c1-1-2", "name": "no_such_name", "arguments": "{\"invalid_arguments\":\"{broken\"}"},
            {"type": "function_call_output", "call_id": "c1-1-1", "output": "1"},
            {"type": "function_call_output", "call_id": "c1-1-2", "output": "2"},
            {"role": "user", "content": [{"type": "input_text", "text": "and now?"}]},
        ],
    });
    assert_eq!(serde_json::from_slice::<Value>(&outgoing.body).unwrap(), expected);
    let other: Value = serde_json::from_slice(&build_request(&item, &target_of(&item, "other")).unwrap().body).unwrap();
    assert!(other["input"].as_array().unwrap().iter().all(|item| item["type"] != "reasoning"));
}

#[test]
fn reply_of_reasoning_alone_is_not_sent_again() {
    let mut item = item();
    let mut messages =
        conversation(super::REASONING_NAME, json!({"type": "reasoning", "id": "rs", "encrypted_content": "eA"}));
    let mut reply: Value = serde_json::from_str(messages[2].get()).unwrap();
    (reply["content"], reply["tool_calls"]) = (json!(""), json!([]));
    messages[2] = Json::of(&reply);
    messages.drain(3..5);
    item.messages = messages;
    let body: Value =
        serde_json::from_slice(&build_request(&item, &target_of(&item, "upstream")).unwrap().body).unwrap();
    assert!(body["input"].as_array().unwrap().iter().all(|item| item["role"].is_string()), "{body}");
}

#[test]
fn encrypted_reasoning_is_requested_only_of_reasoning_models() {
    let mut item = item();
    item.messages = vec![Json::of(&json!({"role": "user", "content": "hi"}))];
    let body = |reasoning| {
        let target = crate::adapter::RequestTarget { reasoning, ..target_of(&item, "upstream") };
        serde_json::from_slice::<Value>(&build_request(&item, &target).unwrap().body).unwrap()
    };
    assert!(body(true)["include"].is_array() && body(false)["include"].is_null());
}
