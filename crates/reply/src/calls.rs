//! Tool calls that a model writes into its text where it has no tools to call.

use crate::tolerant;

/// What models and their servers write around calls, in the forms that models are trained on.
const AROUND: &[&str] = &[
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
    "```json",
    "```tool_call",
    "```",
    "[",
    "]",
    ",",
    ";",
];

/// Whether a text is nothing but tool calls: objects with a tool's name and its arguments, bare, in tags or in a fence.
pub fn is_only_calls(text: &str) -> bool {
    only_calls(text).is_some()
}

/// The same, where a mark says that they are calls: a bare object may be meant for people.
pub fn is_only_marked_calls(text: &str) -> bool {
    only_calls(text) == Some(true)
}

/// Whether calls that are the whole text are marked as such.
fn only_calls(text: &str) -> Option<bool> {
    let mut rest = text.trim_start();
    let (mut calls, mut is_marked) = (0, false);
    while !rest.is_empty() {
        if let Some(mark) = AROUND.iter().find(|mark| rest.starts_with(**mark)) {
            is_marked |= mark.starts_with('<') || mark.starts_with("[T");
            rest = rest[mark.len()..].trim_start();
        } else if rest.starts_with('{') {
            let object = tolerant::read(rest);
            let call = if object.value["function"].is_object() { &object.value["function"] } else { &object.value };
            let has_arguments = call.get("arguments").or_else(|| call.get("parameters")).is_some();
            if object.bytes == 0 || !call["name"].is_string() || !has_arguments {
                return None;
            }
            calls += 1;
            rest = rest.get(object.bytes..).unwrap_or_default().trim_start();
        } else {
            return None;
        }
    }
    (calls > 0).then_some(is_marked)
}
