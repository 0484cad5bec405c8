//! JSON as models write it: whole, or broken off.

use std::borrow::Cow;

use serde_json::Value;

/// Put into a string that was cut off, to see where in the object it stands. No model writes it.
const CUT: char = '\u{FFFF}';

/// Parses an object; line ends within its strings, which JSON forbids and models write, are taken as they are.
pub(crate) fn parse(json: &str) -> Option<Value> {
    serde_json::from_str(json).ok().or_else(|| match escaped(json) {
        Cow::Borrowed(_) => None,
        Cow::Owned(json) => serde_json::from_str(&json).ok(),
    })
}

/// Reads an object that was broken off, by closing its open string and brackets and by nothing else. A status that was cut
/// off is none: nobody knows which word it was to be.
pub(crate) fn repair(json: &str) -> Option<Value> {
    let whole = closed(json, None).and_then(|closed| parse(&closed));
    let Some(mut value) = whole else {
        let unfenced = json.trim_end().strip_suffix("```")?;
        return closed(unfenced, None).and_then(|closed| parse(&closed));
    };
    if let Some(marked) = closed(json, Some(CUT)).and_then(|closed| parse(&closed)) {
        for at in ["/continuation/status", "/status"] {
            if marked.pointer(at) != value.pointer(at)
                && let Some(status) = value.pointer_mut(at)
            {
                *status = Value::Null;
            }
        }
    }
    Some(value)
}

/// Whether nothing but its end is missing of an object, also where closing brackets does not give one: it was cut off
/// within a key, or before a value.
pub(crate) fn is_cut_off(json: &str) -> bool {
    [None, Some("null"), Some("\"\":null"), Some(":null")].into_iter().any(|missing| {
        let more = missing.map(|missing| closed_with(json, None, missing));
        more.unwrap_or_else(|| closed(json, None)).is_some_and(|closed| parse(&closed).is_some())
    })
}

/// The text with its open string and brackets closed; none when a bracket closes what was not opened.
fn closed(json: &str, mark: Option<char>) -> Option<String> {
    closed_with(json, mark, "")
}

/// The same, with something between the string and the brackets.
fn closed_with(json: &str, mark: Option<char>, between: &str) -> Option<String> {
    let mut brackets = Vec::new();
    let mut string: Option<usize> = None;
    let mut skip = 0_usize;
    for (at, c) in json.char_indices() {
        if skip > 0 {
            skip -= 1;
        } else if string.is_some() {
            match c {
                '"' => string = None,
                '\\' => {
                    skip = if json[at + 1..].starts_with('u') { 5 } else { 1 };
                    string = Some(at);
                }
                _ => {}
            }
        } else {
            match c {
                '"' => string = Some(at),
                '{' => brackets.push('}'),
                '[' => brackets.push(']'),
                '}' | ']' if brackets.pop() != Some(c) => return None,
                _ => {}
            }
        }
    }
    // An escape that is not whole goes with what it stood for.
    let end = string.filter(|_| skip > 0).unwrap_or(json.len());
    let mut closed = json[..end].to_owned();
    if string.is_some() {
        closed.extend(mark);
        closed.push('"');
    }
    closed.push_str(between);
    closed.extend(brackets.iter().rev());
    Some(closed)
}

fn escaped(json: &str) -> Cow<'_, str> {
    if !json.contains(|c: char| c < ' ') {
        return Cow::Borrowed(json);
    }
    let (mut out, mut string, mut escape) = (String::with_capacity(json.len() + 16), false, false);
    for c in json.chars() {
        match c {
            '\n' if string => out.push_str("\\n"),
            '\r' if string => out.push_str("\\r"),
            '\t' if string => out.push_str("\\t"),
            _ => out.push(c),
        }
        if c == '"' && !escape {
            string = !string;
        }
        escape = string && c == '\\' && !escape;
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_broken_off_is_closed_and_nothing_else() {
        for (broken, read) in [
            (r#"{"a":"b"#, Some(json!({"a": "b"}))),
            (r#"{"a":["b","c"#, Some(json!({"a": ["b", "c"]}))),
            (r#"{"a":"b\"#, Some(json!({"a": "b"}))),
            (r#"{"a":"b\u00e"#, Some(json!({"a": "b"}))),
            (r#"{"a":"b\\"#, Some(json!({"a": "b\\"}))),
            (r#"{"a":"b\"c"#, Some(json!({"a": "b\"c"}))),
            ("{\"a\":\"b\n", Some(json!({"a": "b\n"}))),
            ("{\"a\":{\"b\":1}\n```\n", Some(json!({"a": {"b": 1}}))),
            (r#"{"a":1"#, Some(json!({"a": 1}))),
            (r#"{"a":1,"#, None),
            (r#"{"a":"#, None),
            (r#"{"a"#, None),
            (r#"{"a":1]"#, None),
            (r#"{"a":1 "b":2"#, None),
            (r#"{"continuation":{"status":"CONTIN"#, Some(json!({"continuation": {"status": null}}))),
            (r#"{"status":"TER"#, Some(json!({"status": null}))),
            (
                r#"{"continuation":{"status":"CONTINUE","reason":"mo"#,
                Some(json!({"continuation": {"status": "CONTINUE", "reason": "mo"}})),
            ),
        ] {
            assert_eq!(repair(broken), read, "{broken}");
        }
    }
}
