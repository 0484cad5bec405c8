use contract::Json;
use serde_json::{Value, json};

use super::*;
use crate::adapter::testing::target_of;
use crate::adapter::transcript::tests::{conversation, item};

#[test]
fn conversation_with_each_kind_of_message_is_converted() {
    let mut item = item();
    item.messages =
        conversation(super::REASONING_NAME, json!({"type": "thinking", "thinking": "Hm", "signature": "c2ln"}));
    item.parameters =
        serde_json::from_value(json!({"temperature": 0.5, "stop": "END", "tool_choice": "required", "top_k": 3}))
            .unwrap();
    item.parallel_tool_calls = false;
    item.response_format =
        Some(Json::of(&json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}})));
    let outgoing = build_request(&item, &target_of(&item, "upstream")).unwrap();
    assert_eq!(
        (outgoing.path.as_str(), outgoing.headers),
        ("/messages", vec![("anthropic-version", "2023-06-01".to_owned())])
    );
    let expected = json!({
        "model": "upstream", "max_tokens": 4096, "stream": true, "system": "be kind", "temperature": 0.5, "top_k": 3,
        "stop_sequences": ["END"], "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}, "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "look"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            ]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
                {"type": "text", "text": "So"},
                {"type": "tool_use", "id": "c1-1-1", "name": "f", "input": {"a": 1}},
                {"type": "tool_use", "id": "c1-1-2", "name": "no_such_name", "input": {"invalid_arguments": "{broken"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1-1-1", "content": "1"},
                {"type": "tool_result", "tool_use_id": "c1-1-2", "content": "2"},
                {"type": "text", "text": "and now?"},
            ]},
        ],
    });
    assert_eq!(serde_json::from_slice::<Value>(&outgoing.body).unwrap(), expected);
    // Another model cannot read the thinking blocks of this one.
    let other: Value = serde_json::from_slice(&build_request(&item, &target_of(&item, "other")).unwrap().body).unwrap();
    assert_eq!(other["messages"][1]["content"][0]["type"], "text");
}

#[test]
fn conversation_with_calls_and_no_tools_names_the_tools_that_were_called() {
    let mut item = item();
    item.messages =
        conversation(super::REASONING_NAME, json!({"type": "thinking", "thinking": "Hm", "signature": "c2ln"}));
    item.tools = Vec::new();
    let body: Value =
        serde_json::from_slice(&build_request(&item, &target_of(&item, "upstream")).unwrap().body).unwrap();
    let tool = |name: &str| json!({"name": name, "input_schema": {"type": "object"}});
    assert_eq!(body["tools"], json!([tool("f"), tool("no_such_name")]));
    assert_eq!(body["tool_choice"], json!({"type": "none"}));
    item.messages.truncate(2);
    let body: Value =
        serde_json::from_slice(&build_request(&item, &target_of(&item, "upstream")).unwrap().body).unwrap();
    assert_eq!((body.get("tools"), body.get("tool_choice")), (None, None));
}

#[test]
fn reply_of_reasoning_alone_is_not_sent_again() {
    let mut item = item();
    let mut messages =
        conversation(super::REASONING_NAME, json!({"type": "thinking", "thinking": "Hm", "signature": "c2ln"}));
    let mut reply: Value = serde_json::from_str(messages[2].get()).unwrap();
    (reply["content"], reply["tool_calls"]) = (json!(" \n"), json!([]));
    messages[2] = Json::of(&reply);
    messages.drain(3..5);
    item.messages = messages;
    let body: Value =
        serde_json::from_slice(&build_request(&item, &target_of(&item, "upstream")).unwrap().body).unwrap();
    assert_eq!(body["messages"].as_array().unwrap().len(), 1, "{body}");
    assert_eq!(body["messages"][0]["role"], "user");
}

#[test]
fn max_tokens_not_set_is_the_maximum_of_the_model() {
    let mut item = item();
    item.messages = vec![Json::of(&json!({"role": "user", "content": "hi"}))];
    let max = |item: &ModelItem| {
        let target = RequestTarget { max_output: Some(64_000), ..target_of(item, "upstream") };
        serde_json::from_slice::<Value>(&build_request(item, &target).unwrap().body).unwrap()["max_tokens"].clone()
    };
    assert_eq!(max(&item), 64_000);
    item.parameters.insert("max_tokens".to_owned(), json!(7));
    assert_eq!(max(&item), 7);
}

#[test]
fn thinking_is_enabled_only_where_the_protocol_allows_it() {
    let thinking = |change: &dyn Fn(&mut ModelItem), reasoning: bool, model: &str| -> Value {
        let mut item = item();
        item.messages =
            conversation(super::REASONING_NAME, json!({"type": "thinking", "thinking": "Hm", "signature": "c2ln"}));
        item.parameters.clear();
        change(&mut item);
        let target = RequestTarget { reasoning, max_output: Some(64_000), ..target_of(&item, model) };
        let body: Value = serde_json::from_slice(&build_request(&item, &target).unwrap().body).unwrap();
        body["thinking"].clone()
    };
    let with = |name: &'static str, value: Value| {
        move |item: &mut ModelItem| drop(item.parameters.insert(name.to_owned(), value.clone()))
    };
    let enabled = |tokens: u64| json!({"type": "enabled", "budget_tokens": tokens});
    assert_eq!(thinking(&|_| {}, true, "upstream"), enabled(8_192));
    assert_eq!(thinking(&with("max_tokens", json!(4_000)), true, "upstream"), enabled(2_000));
    assert_eq!(thinking(&with("thinking", json!({"type": "disabled"})), true, "upstream"), json!({"type": "disabled"}));
    assert_eq!(thinking(&|_| {}, false, "upstream"), Value::Null);
    for (parameter, value) in
        [("temperature", json!(0.5)), ("tool_choice", json!("required")), ("max_tokens", json!(1_500))]
    {
        assert_eq!(thinking(&with(parameter, value), true, "upstream"), Value::Null, "{parameter}");
    }
    // The calls are of another model, without a thinking block that this one can read.
    assert_eq!(thinking(&|_| {}, true, "other"), Value::Null);
    let asks = |item: &mut ModelItem| item.messages = vec![Json::of(&json!({"role": "user", "content": "hi"}))];
    assert_eq!(thinking(&asks, true, "other"), enabled(8_192));
}
