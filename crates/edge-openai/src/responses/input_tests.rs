//! Inputs of responses, as sessions take them.

use serde_json::json;

use super::*;

fn turn(items: &Value) -> Result<(String, Value), ApiError> {
    let turn = to_turn(&serde_json::from_value(items.clone()).unwrap())?.with_instructions();
    Ok((turn.prompt.text(), json!(turn.history)))
}

#[test]
fn calls_and_results_of_other_servers_are_history() {
    let (prompt, history) = turn(&json!([
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Look."},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{\"a\":1}"},
        {"type": "function_call", "call_id": "call_2", "name": "see", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_2", "output": [
            {"type": "input_text", "text": "a cat"}, {"type": "input_image", "image_url": "data:image/png;base64,AA"},
        ]},
        {"type": "function_call_output", "call_id": "call_1", "output": "SECRET-42"},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "ailoop", "name": "read", "arguments": "{}", "output": "text"},
        {"type": "custom_tool_call", "call_id": "call_3", "name": "patch", "input": "- a"},
        {"type": "custom_tool_call_output", "call_id": "call_3", "output": "done"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "cats"}},
        {"role": "user", "content": "And?"},
    ]))
    .unwrap();
    assert_eq!(prompt, "And?");
    let expected = json!([
        {"role": "user", "content": "Instructions of the application:\nBe brief.\n\nMessage of the user:\nLook."},
        {"role": "assistant", "content": "I look.", "tool_calls": [
            {"name": "look", "arguments": "{\"a\":1}", "result": "SECRET-42"},
            {"name": "see", "arguments": "{}", "result": "a cat\n[input_image, not shown]"},
        ]},
        {"role": "assistant", "tool_calls": [{"name": "read", "arguments": "{}", "result": "text"}]},
        {"role": "assistant", "tool_calls": [{"name": "patch", "arguments": "- a", "result": "done"}]},
        {"role": "assistant", "tool_calls": [{"name": "web_search", "arguments": "{\"action\":{\"query\":\"cats\"}}"}]},
    ]);
    assert_eq!(history, expected);
}

#[test]
fn input_that_no_agent_can_take_is_refused() {
    let user = json!({"role": "user", "content": "Hi"});
    let rows = [
        (json!([]), "no message"),
        (json!([{"role": "robot", "content": "Hi"}]), "robot"),
        (json!([user, {"type": "compaction", "encrypted_content": "x"}]), "input[1] is a \"compaction\""),
        (json!([{"type": "function_call_output", "call_id": "call_9", "output": "4"}, user]), "input[0] is a result"),
        (json!([{"content": "Hi"}]), "neither"),
    ];
    for (items, wanted) in rows {
        let refused = turn(&items).unwrap_err();
        assert!(refused.message.contains(wanted), "{refused}");
    }
    let known = json!([{"type": "function_call_output", "call_id": "call_9", "output": "4"}, user]);
    let next = to_next_turn(&serde_json::from_value(known).unwrap()).unwrap();
    assert_eq!((next.prompt.text(), next.history.len()), ("Hi".to_owned(), 0));
}

#[test]
fn items_of_a_new_conversation_are_all_history() {
    let items = json!([{"role": "system", "content": "Be brief."}, {"role": "assistant", "content": "Hello"}]);
    let history = to_history(&serde_json::from_value(items).unwrap()).unwrap();
    let expected = json!([
        {"role": "user", "content": "Instruction of the application:\nBe brief."},
        {"role": "assistant", "content": "Hello"},
    ]);
    assert_eq!(json!(history), expected);
}
