//! Makes a result fit into what a model reads, so that it is cut here and stays valid JSON.

use contract::limits::TOOL_OUTPUT_BYTES_MAX;
use serde::Serialize;

/// Bytes of JSON for lists and contents; the rest is for the fields around them.
pub(crate) const RESULT_BYTES_MAX: usize = TOOL_OUTPUT_BYTES_MAX - (8 << 10);

/// Takes the first values that together fit into [`RESULT_BYTES_MAX`] bytes of JSON.
pub(crate) fn take_fitting<T: Serialize>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut room = RESULT_BYTES_MAX;
    let fits = |value: &T| {
        let left = serde_json::to_vec(value).ok().and_then(|json| room.checked_sub(json.len() + 1));
        room = left.unwrap_or(0);
        left.is_some()
    };
    values.into_iter().take_while(fits).collect()
}

/// Counts the bytes of a text within JSON, without its quotes.
pub(crate) fn escaped_len(text: &str) -> usize {
    let more = |c: char| match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 1,
        c if u32::from(c) < 0x20 => 5,
        _ => 0,
    };
    text.len() + text.chars().map(more).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn escaped_length_equals_that_of_json() {
        for text in ["", "plain", "a\"b\\c\n\t\r", "\u{1}\u{1f}", "ä€😀", "\u{8}\u{c}\u{7f}"] {
            assert_eq!(escaped_len(text) + 2, serde_json::to_string(text).unwrap().len(), "{text:?}");
        }
    }

    #[test]
    fn values_over_the_limit_are_dropped() {
        let values = take_fitting(std::iter::repeat_n(Value::from("x".repeat(997)), 1_000));
        assert_eq!(values.len(), RESULT_BYTES_MAX / 1_000);
    }
}
