//! Reads the JSON of replies leniently: unknown fields, enums and types never fail a stream.

use contract::model::{FailureKind, FinishReason, Usage};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::failure::CallFailure;

/// Serialises a request. The error has no content of it.
pub(crate) fn encode<T: Serialize>(body: &T) -> Result<Vec<u8>, CallFailure> {
    serde_json::to_vec(body)
        .map_err(|_| CallFailure::new(FailureKind::BadRequest, "the request cannot be written as JSON"))
}

/// Sets a field of an object within a request. A value of the session that is no object is replaced.
pub(crate) fn set_field(body: &mut Map<String, Value>, object: &str, field: &str, value: Value) {
    let within = body.entry(object).or_insert_with(|| Value::Object(Map::new()));
    if let Some(fields) = within.as_object_mut() {
        fields.insert(field.to_owned(), value);
    } else {
        *within = Value::Object(Map::from_iter([(field.to_owned(), value)]));
    }
}

/// Reads a text that may also be a list of text parts.
pub(crate) fn read_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(read_text_part).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

fn read_text_part(part: &Value) -> String {
    if part["type"].as_str().is_some_and(|kind| kind != "text") { String::new() } else { read_text(&part["text"]) }
}

/// Reads the reasoning of a delta or message, under each name that providers use.
pub(crate) fn read_reasoning(delta: &Value) -> String {
    let named = ["reasoning_content", "reasoning"].iter().map(|name| read_text(&delta[*name]));
    let thinking = |part: &Value| read_text(&part["thinking"]);
    named
        .chain(delta["content"].as_array().map(|parts| parts.iter().map(thinking).collect()))
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

/// Reads arguments: a text unchanged, any other value as JSON text.
pub(crate) fn read_arguments(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Reads a count that may be an integer, a float or a text.
pub(crate) fn read_count(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().map(to_whole)),
        Value::String(text) => text.parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates, as intended.
fn to_whole(number: f64) -> u64 {
    number as u64
}

/// Reads the usage of a reply; `None` if there is none.
pub(crate) fn read_usage(value: &Value) -> Option<Usage> {
    let get = |path: &str| value.pointer(path).and_then(read_count);
    let (input, output) = (get("/prompt_tokens"), get("/completion_tokens"));
    if input.is_none() && output.is_none() {
        return None;
    }
    let cached = get("/prompt_tokens_details/cached_tokens").or_else(|| get("/prompt_cache_hit_tokens"));
    let reasoning = get("/completion_tokens_details/reasoning_tokens").unwrap_or(0);
    let (input, output) = (input.unwrap_or(0), output.unwrap_or(0));
    // Some providers do not include reasoning in the completion tokens; their total shows it.
    let beside = get("/total_tokens")
        .is_some_and(|total| reasoning > 0 && total == input.saturating_add(output).saturating_add(reasoning));
    let output = if beside { output.saturating_add(reasoning) } else { output };
    Some(Usage { input, output, cached: cached.unwrap_or(0), reasoning })
}

/// Maps a finish reason. `None` for the empty text that some servers send with each chunk.
pub(crate) fn read_finish_reason(raw: &str) -> Option<FinishReason> {
    match raw.to_ascii_lowercase().as_str() {
        "" => None,
        "stop" | "end_turn" | "stop_sequence" | "eos" | "eos_token" => Some(FinishReason::Stop),
        "tool_calls" | "tool_use" | "function_call" => Some(FinishReason::ToolCalls),
        "length" | "max_tokens" | "model_length" => Some(FinishReason::Length),
        "content_filter" | "safety" | "recitation" => Some(FinishReason::ContentFilter),
        _ => Some(FinishReason::Other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_and_reasoning_in_each_shape_are_read() {
        assert_eq!(read_text(&json!("a")), "a");
        assert_eq!(read_text(&json!([{"type": "text", "text": "a"}, {"type": "image"}, {"text": "b"}])), "ab");
        for other in [json!(null), json!(7), json!({"text": "a"})] {
            assert_eq!(read_text(&other), "");
        }
        assert_eq!(read_reasoning(&json!({"reasoning_content": "a", "reasoning": "a"})), "a");
        assert_eq!(read_reasoning(&json!({"reasoning_content": null, "reasoning": "b"})), "b");
        let parts = json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "c"}]}]});
        assert_eq!((read_reasoning(&parts), read_text(&parts["content"])), ("c".to_owned(), String::new()));
    }

    #[test]
    fn usage_in_each_shape_is_read() {
        let full = json!({"prompt_tokens": 10, "completion_tokens": 5.0, "prompt_tokens_details": {"cached_tokens": "4"},
                          "completion_tokens_details": {"reasoning_tokens": 2}});
        assert_eq!(read_usage(&full), Some(Usage { input: 10, output: 5, cached: 4, reasoning: 2 }));
        let other = json!({"prompt_tokens": 10, "prompt_cache_hit_tokens": 3, "completion_tokens_details": null});
        assert_eq!(read_usage(&other), Some(Usage { input: 10, output: 0, cached: 3, reasoning: 0 }));
        assert_eq!(read_usage(&json!({"total_tokens": 7})), None);
        assert_eq!(read_usage(&json!(null)), None);
        assert_eq!(
            read_usage(&json!({"prompt_tokens": -1, "completion_tokens": 1e300})).map(Usage::total),
            Some(u64::MAX)
        );
    }

    #[test]
    fn reasoning_not_in_completion_tokens_is_found_in_the_total() {
        let output = |total: u64| {
            let figures = serde_json::json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": total,
                                          "completion_tokens_details": {"reasoning_tokens": 30}});
            read_usage(&figures).map(|usage| (usage.output, usage.reasoning))
        };
        assert_eq!((output(45), output(15)), (Some((35, 30)), Some((5, 30))));
    }
}
