//! Texts that are nothing but tool calls, as servers of small models leave them.

#[test]
fn text_of_calls_alone_differs_from_text_for_people() {
    for calls in [
        "<tool_call>\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"notes.txt\"}}\n</tool_call>",
        "{\"name\": \"read_file\", \"arguments\": {\"path\": \"notes.txt\"}}\n</tool_call>",
        "<tool_call> {\"name\": \"read_file\", \"arguments\": {\"path\": \"notes.txt\"}",
        "{\"name\": \"read_file\", \"parameters\": {}}",
        "```json\n{\"name\": \"read_file\", \"arguments\": {}}\n```",
        "[TOOL_CALLS] [{\"name\": \"a\", \"arguments\": {}}, {\"name\": \"b\", \"arguments\": {}}]",
        "{\"type\":\"function\",\"function\":{\"name\":\"a\",\"arguments\":\"{}\"}}",
        "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>",
    ] {
        assert!(reply::is_only_calls(calls), "{calls}");
        let is_marked = calls.contains("tool_call>") || calls.contains("TOOL_CALLS");
        assert_eq!(reply::is_only_marked_calls(calls), is_marked, "{calls}");
    }
    for text in [
        "",
        "```",
        "[]",
        "The meeting is on Tuesday.",
        "{\"name\": \"Ada\", \"born\": 1815}",
        "I call it:\n<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>",
        "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call>\nThe meeting is on Tuesday.",
        "{",
        "{]",
    ] {
        assert!(!reply::is_only_calls(text), "{text}");
    }
    // Any length is read once.
    assert!(!reply::is_only_calls(&"{\"name\":1},".repeat(100_000)));
    assert!(!reply::is_only_calls(&"[".repeat(1 << 20)));
}
