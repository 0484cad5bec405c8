//! Tool calls that a model writes into its text where it has no tools to call.

use crate::tolerant;

/// Marks of tool calls, in the forms that models are trained on.
const MARKS: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<tool_calls>",
    "</tool_calls>",
    "<function_call>",
    "</function_call>",
    "<|tool_call|>",
    "<|/tool_call|>",
    "<|python_tag|>",
    "[TOOL_CALLS]",
];
/// Other text that is allowed around and between objects.
const AROUND: &[&str] = &["```json", "```tool_call", "```", "[", "]", ",", ";"];

/// Whether a text is nothing but tool calls: objects with a tool's name and its arguments, bare, in tags or in a fence.
pub fn is_only_calls(text: &str) -> bool {
    let mut rest = text.trim_start();
    let mut calls = 0;
    while !rest.is_empty() {
        if let Some(behind) = MARKS.iter().chain(AROUND).find_map(|mark| rest.strip_prefix(mark)) {
            rest = behind.trim_start();
        } else if rest.starts_with('{') {
            let object = tolerant::read(rest);
            let call = if object.value["function"].is_object() { &object.value["function"] } else { &object.value };
            let has_arguments = call.get("arguments").or_else(|| call.get("parameters")).is_some();
            if object.bytes == 0 || !call["name"].is_string() || !has_arguments {
                return false;
            }
            calls += 1;
            rest = rest.get(object.bytes..).unwrap_or_default().trim_start();
        } else {
            return false;
        }
    }
    calls > 0
}

/// The same, where a mark says that they are calls: a bare object may be meant for people.
pub fn is_only_marked_calls(text: &str) -> bool {
    // Most replies have no mark, and an answer in JSON need not be read again.
    MARKS.iter().any(|mark| text.contains(mark)) && is_only_calls(text)
}
