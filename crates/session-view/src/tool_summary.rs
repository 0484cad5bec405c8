//! One-line summaries of the arguments and results of tool calls. Pure.

use serde_json::{Map, Value};
use terminal::columns::clip;
use terminal::format;
use terminal::printable::{one_line, reveal_invisible};

/// Columns of a summary, which the line clips further.
const SUMMARY_COLUMNS_MAX: usize = 400;
/// Names of the arguments that say most about a call, the most telling first.
const TELLING_ARGUMENTS: &[&str] = &[
    "path",
    "file",
    "file_path",
    "filename",
    "url",
    "command",
    "program",
    "pattern",
    "query",
    "question",
    "subject",
    "name",
    "id",
    "agent",
    "task",
    "text",
];
/// Names of the fields of a result that are its text.
const TEXT_FIELDS: &[&str] = &["text", "content", "message", "answer", "response", "result", "output", "title"];

/// Summarizes the arguments of a call: the most telling text among them.
pub(crate) fn summarize_arguments(arguments: &str) -> String {
    let value: Value = serde_json::from_str(arguments).unwrap_or_else(|_| Value::from(arguments));
    let summary = match &value {
        Value::Object(fields) => find_telling(fields)
            .unwrap_or_else(|| if fields.is_empty() { String::new() } else { format::join_words(arguments) }),
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => value.to_string(),
    };
    to_line(&summary)
}

/// Summarizes the result of a call: a count, a status, or its first line.
pub(crate) fn summarize_result(content: &str) -> String {
    let summary = match serde_json::from_str(content) {
        Ok(Value::Object(fields)) => summarize_object(&fields).unwrap_or_else(|| describe_text(content)),
        Ok(Value::Array(items)) => format::plural(items.len() as u64, "item"),
        Ok(Value::String(text)) => describe_text(&text),
        Ok(Value::Null) => String::new(),
        Ok(Value::Bool(_) | Value::Number(_)) | Err(_) => describe_text(content),
    };
    to_line(&summary)
}

/// Returns the beginning of a text on one line, without characters that act on a terminal.
pub fn to_line(text: &str) -> String {
    let line = text.split_whitespace().take(SUMMARY_COLUMNS_MAX).collect::<Vec<_>>().join(" ");
    clip(&one_line(&reveal_invisible(&line)), SUMMARY_COLUMNS_MAX)
}

fn find_telling(fields: &Map<String, Value>) -> Option<String> {
    let named = TELLING_ARGUMENTS.iter().filter_map(|name| fields.get(*name)).find_map(as_words);
    let text = named.or_else(|| fields.values().find_map(as_words))?;
    // The arguments of a program belong to it.
    let rest = fields.get("args").or_else(|| fields.get("arguments")).and_then(as_words);
    Some(rest.map_or_else(|| text.clone(), |rest| format!("{text} {rest}")))
}

/// Returns a text, or a list of texts as words.
fn as_words(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Array(items) if !items.is_empty() => {
            let words: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
            words.map(|words| words.join(" "))
        }
        Value::String(_) | Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

fn summarize_object(fields: &Map<String, Value>) -> Option<String> {
    let number = |name: &str| fields.get(name).and_then(Value::as_u64);
    let text = |name: &str| fields.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    let is_set = |name: &str| fields.get(name).and_then(Value::as_bool).unwrap_or(false);
    if let Some(error) = text("error") {
        return Some(error.to_owned());
    }
    if let Some(code) = fields.get("exit_code").and_then(Value::as_i64) {
        let output = text("stdout").or_else(|| text("stderr")).map(describe_text);
        return Some(output.map_or_else(|| format!("exit {code}"), |output| format!("exit {code}, {output}")));
    }
    if is_set("binary") {
        return Some(number("bytes").map_or_else(|| "binary".to_owned(), |n| format!("binary, {}", format::bytes(n))));
    }
    if let Some(lines) = number("lines") {
        return Some(format::plural(lines, "line"));
    }
    if let Some(total) = number("total") {
        let noun = if fields.contains_key("matches") { "match" } else { "file" };
        return match (noun, number("files")) {
            ("match", Some(files)) => {
                let matches =
                    if total == 1 { "1 match".to_owned() } else { format!("{} matches", format::count(total)) };
                Some(format!("{matches} in {}", format::plural(files, "file")))
            }
            ("file", None) if fields.contains_key("files") => Some(format::plural(total, "file")),
            _ => Some(format!("{} in total", format::count(total))),
        };
    }
    let status = number("status").map(|status| format!("status {status}"));
    let description = TEXT_FIELDS.iter().find_map(|name| text(name)).map(describe_text);
    match (status, description) {
        (Some(status), Some(description)) => Some(format!("{status}, {description}")),
        (Some(one), None) | (None, Some(one)) => Some(one),
        (None, None) => number("bytes").map(format::bytes),
    }
}

/// Describes a text: itself if it has one line, else the number of its lines.
fn describe_text(text: &str) -> String {
    let text = text.trim();
    match text.lines().count() {
        0 | 1 => text.to_owned(),
        lines => format::plural(lines as u64, "line"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_summarized_by_the_most_telling_text() {
        for (arguments, summary) in [
            (r#"{"path":"src/main.rs","offset":3}"#, "src/main.rs"),
            (r#"{"content":"long text","path":"a.md"}"#, "a.md"),
            (r#"{"pattern":"fn main","max":3}"#, "fn main"),
            (r#"{"command":["cargo","test"]}"#, "cargo test"),
            (r#"{"program":"git","args":["log","-1"]}"#, "git log -1"),
            (r#"{"zebra":"z","apple":"a"}"#, "a"),
            (r#"{"count":3}"#, r#"{"count":3}"#),
            ("{}", ""),
            ("not json", "not json"),
            (r#"{"path":"a\nb\u001b[2J\u202ec"}"#, "a b<U+001B>[2J<U+202E>c"),
        ] {
            assert_eq!(summarize_arguments(arguments), summary, "{arguments}");
        }
    }

    #[test]
    fn results_are_summarized_by_count_status_or_first_line() {
        for (content, summary) in [
            (r#"{"path":"a","lines":332,"bytes":9000,"content":"x","truncated":false}"#, "332 lines"),
            (r#"{"path":"a","lines":0,"bytes":1500,"content":"","binary":true}"#, "binary, 1.5 kB"),
            (r#"{"files":[{"path":"a"}],"total":1749,"total_bytes":5}"#, "1,749 files"),
            (r#"{"matches":[],"total":13,"files":5}"#, "13 matches in 5 files"),
            (r#"{"matches":[],"total":1,"files":1}"#, "1 match in 1 file"),
            (r#"{"exit_code":1,"stdout":"","stderr":"no such file\n"}"#, "exit 1, no such file"),
            (r#"{"exit_code":0,"stdout":"a\nb\n","stderr":""}"#, "exit 0, 2 lines"),
            (r#"{"url":"http://x","status":200,"text":"a\nb\nc"}"#, "status 200, 3 lines"),
            (r#"{"path":"a","bytes":4115}"#, "4.1 kB"),
            (r#"{"error":"no such file","code":"missing"}"#, "no such file"),
            (r#"{"response":"a\n\nb","session":"s"}"#, "3 lines"),
            ("[1,2]", "2 items"),
            ("one\ntwo", "2 lines"),
            ("sunny", "sunny"),
            ("", ""),
            ("null", ""),
            ("a\u{1b}]52;c;eA==\u{7}b", "a<U+001B>]52;c;eA==<U+0007>b"),
        ] {
            assert_eq!(summarize_result(content), summary, "{content}");
        }
    }

    #[test]
    fn summary_of_a_long_text_has_a_bound() {
        let long = "x".repeat(1 << 20);
        assert_eq!(summarize_result(&long).chars().count(), SUMMARY_COLUMNS_MAX);
        assert_eq!(summarize_arguments(&format!(r#"{{"path":"{long}"}}"#)).chars().count(), SUMMARY_COLUMNS_MAX);
    }
}
