use contract::Json;
use serde_json::{Value, json};

use super::*;
use crate::adapter::testing::target_of;
use crate::adapter::transcript::tests::{conversation, item};

#[test]
fn conversation_with_each_kind_of_message_is_converted() {
    let mut item = item();
    item.messages = conversation(super::REASONING_NAME, json!({"call": 2, "thoughtSignature": "cw=="}));
    item.parameters = serde_json::from_value(json!({"temperature": 0.5, "max_tokens": 9, "stop": ["END"], "tool_choice": "none", "safetySettings": [], "generationConfig": {"thinkingConfig": {"includeThoughts": true}}})).unwrap();
    item.response_format =
        Some(Json::of(&json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}})));
    let outgoing = build_request(&item, &target_of(&item, "upstream")).unwrap();
    assert_eq!(outgoing.path, "/models/upstream:streamGenerateContent?alt=sse");
    let expected = json!({
        "systemInstruction": {"parts": [{"text": "be kind"}]}, "safetySettings": [],
        "generationConfig": {"temperature": 0.5, "maxOutputTokens": 9, "stopSequences": ["END"],
            "thinkingConfig": {"includeThoughts": true}, "responseMimeType": "application/json", "responseJsonSchema": {"type": "object"}},
        "tools": [{"functionDeclarations": [{"name": "f", "description": "d", "parametersJsonSchema": {"type": "object"}}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "NONE"}},
        "contents": [
            {"role": "user", "parts": [
                {"text": "look"},
                {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
                {"fileData": {"fileUri": "https://example.org/a.png"}},
            ]},
            {"role": "model", "parts": [
                {"text": "So"},
                {"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "skip_thought_signature_validator"},
                {"functionCall": {"name": "no_such_name", "args": {"invalid_arguments": "{broken"}}, "thoughtSignature": "cw=="},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "f", "response": {"result": "1"}}},
                {"functionResponse": {"name": "no_such_name", "response": {"result": "2"}}},
                {"text": "and now?"},
            ]},
        ],
    });
    assert_eq!(serde_json::from_slice::<Value>(&outgoing.body).unwrap(), expected);
    item.streaming.enabled = false;
    assert_eq!(
        build_request(&item, &target_of(&item, "models/upstream")).unwrap().path,
        "/models/upstream:generateContent"
    );
}

#[test]
fn model_name_with_other_path_characters_is_refused() {
    let mut item = item();
    item.messages = vec![Json::of(&json!({"role": "user", "content": "hi"}))];
    for good in ["gemini-2.5-pro", "models/gemini-2.5-pro", "tuned/a_b-1:x@y"] {
        assert!(build_request(&item, &target_of(&item, good)).is_ok(), "{good}");
    }
    for bad in ["", "..", "a/../b", "a/./b", "a//b", "/a", "a?x=", "a#b", "a%2e%2e/b", "a b", "a\\b"] {
        assert_eq!(build_request(&item, &target_of(&item, bad)).unwrap_err().kind, FailureKind::BadRequest, "{bad}");
    }
}

#[test]
fn thoughts_are_requested_only_of_reasoning_models() {
    let config = |reasoning: bool| -> Value {
        let mut item = item();
        item.messages = vec![Json::of(&json!({"role": "user", "content": "hi"}))];
        item.parameters.clear();
        let target = RequestTarget { reasoning, ..target_of(&item, "upstream") };
        let body: Value = serde_json::from_slice(&build_request(&item, &target).unwrap().body).unwrap();
        body["generationConfig"]["thinkingConfig"].clone()
    };
    assert_eq!((config(true), config(false)), (json!({"includeThoughts": true}), Value::Null));
}
