//! View of a gate that a person reads before answering: the file and its change first, then all other arguments. Pure.

use contract::event::GateOpened;
use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};
use terminal::Style;
use terminal::format;
use terminal::printable::reveal_invisible;

/// Lines of a call that are shown before the person asks for all of them.
const LINES_MAX: usize = 40;
/// Characters of a line that are shown before the person asks for all of them.
const LINE_CHARS_MAX: usize = 400;
/// Names of the arguments that say where a call acts.
const PLACES: &[&str] = &["path", "file", "file_path", "filename", "url", "command", "program", "to"];
/// Pairs of arguments that are a text before and after an edit.
const EDITS: &[(&str, &str)] =
    &[("old_text", "new_text"), ("old_string", "new_string"), ("old", "new"), ("search", "replace")];
/// Names of the arguments that are a whole new text.
const CONTENTS: &[&str] = &["content", "contents", "body"];

/// A line of the view.
pub(super) type ViewLine = (Style, String);

/// The arguments of a call, as a person reads them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CallView {
    pub(super) lines: Vec<ViewLine>,
    /// Lines that are not shown, or not to their end.
    pub(super) hidden: usize,
}

/// Makes the view of a call. With `shows_all`, nothing is cut.
pub(super) fn view_call(gate: &GateOpened, shows_all: bool) -> CallView {
    let arguments = gate.arguments.as_ref().map(contract::Json::get).unwrap_or_default();
    let lines = match serde_json::from_str(arguments) {
        Ok(Value::Object(fields)) => view_fields(&fields),
        Ok(_) | Err(_) => vec![(Style::Plain, arguments.to_owned())],
    };
    // A person approves what they see, so invisible characters are named.
    let lines: Vec<ViewLine> = lines.into_iter().map(|(style, line)| (style, reveal_invisible(&line))).collect();
    if shows_all {
        return CallView { lines, hidden: 0 };
    }
    let is_long = |line: &str| line.chars().count() > LINE_CHARS_MAX;
    let hidden =
        lines.len().saturating_sub(LINES_MAX) + lines.iter().take(LINES_MAX).filter(|(_, line)| is_long(line)).count();
    let cut = |(style, line): ViewLine| (style, format::cut(line, LINE_CHARS_MAX));
    CallView { lines: lines.into_iter().take(LINES_MAX).map(cut).collect(), hidden }
}

fn view_fields(fields: &Map<String, Value>) -> Vec<ViewLine> {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let mut shown: Vec<&str> = Vec::new();
    let mut lines = Vec::new();
    for name in PLACES.iter().filter(|name| fields.contains_key(**name)) {
        shown.push(name);
        lines.extend(field_lines(name, fields.get(*name)));
    }
    for (old, new) in EDITS {
        if let (Some(before), Some(after)) = (text(old), text(new)) {
            shown.extend([*old, *new]);
            lines.extend(diff_lines(before, after));
        }
    }
    let rest: Vec<&String> = fields.keys().filter(|name| !shown.contains(&name.as_str())).collect();
    let is_content = |name: &str| CONTENTS.contains(&name) && text(name).is_some();
    for name in rest.iter().filter(|name| !is_content(name)) {
        lines.extend(field_lines(name, fields.get(*name)));
    }
    for name in rest.iter().filter(|name| is_content(name)) {
        let content = text(name).unwrap_or_default();
        lines.push((Style::Faint, format!("{name}, {} bytes:", content.len())));
        lines.extend(content.lines().map(|line| (Style::Good, format!("+ {line}"))));
    }
    lines
}

fn field_lines(name: &str, value: Option<&Value>) -> Vec<ViewLine> {
    match value {
        Some(Value::String(text)) if text.contains('\n') => {
            let head = (Style::Plain, format!("{name}:"));
            std::iter::once(head).chain(text.lines().map(|line| (Style::Plain, format!("  {line}")))).collect()
        }
        Some(Value::String(text)) => vec![(Style::Plain, format!("{name}: {text}"))],
        Some(value) => vec![(Style::Plain, format!("{name}: {value}"))],
        None => Vec::new(),
    }
}

fn diff_lines(before: &str, after: &str) -> Vec<ViewLine> {
    let diff = TextDiff::from_lines(before, after);
    let line = |tag: ChangeTag, text: &str| {
        let text = text.trim_end_matches('\n');
        match tag {
            ChangeTag::Equal => (Style::Faint, format!("  {text}")),
            ChangeTag::Delete => (Style::Bad, format!("- {text}")),
            ChangeTag::Insert => (Style::Good, format!("+ {text}")),
        }
    };
    diff.iter_all_changes().map(|change| line(change.tag(), &change.to_string())).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use contract::event::GateKind;
    use contract::{CallId, Json};
    use serde_json::json;

    use super::*;

    pub(in crate::chat) fn gate(id: &str, kind: GateKind, arguments: &Value) -> GateOpened {
        GateOpened {
            gate: CallId::new(id).unwrap(),
            kind,
            arguments_sha256: format!("hash of {id}"),
            expires: contract::Timestamp::default(),
            tool: Some(contract::ToolName::new("write_file").unwrap()),
            arguments: Some(Json::parse(&arguments.to_string()).unwrap()),
            on_expiry: contract::settings::OnExpiry::Deny,
        }
    }

    fn view(arguments: &Value, shows_all: bool) -> (Vec<String>, usize) {
        let view = view_call(&gate("c1", GateKind::Approval, arguments), shows_all);
        (view.lines.into_iter().map(|(_, line)| line).collect(), view.hidden)
    }

    #[test]
    fn file_comes_first_and_content_last() {
        let (lines, hidden) = view(&json!({"content": "a\nb\n", "mode": 3, "path": "x.md"}), false);
        assert_eq!(lines, ["path: x.md", "mode: 3", "content, 4 bytes:", "+ a", "+ b"]);
        assert_eq!(hidden, 0);
    }

    #[test]
    fn edit_is_shown_as_a_diff() {
        let (lines, _) = view(&json!({"path": "x", "old_text": "a\nb\n", "new_text": "a\nc\n"}), false);
        assert_eq!(lines, ["path: x", "  a", "- b", "+ c"]);
    }

    #[test]
    fn long_call_is_cut_until_all_is_asked_for() {
        let arguments = json!({"path": "x", "content": "line\n".repeat(100)});
        assert_eq!(view(&arguments, false).1, 62);
        let (lines, hidden) = view(&arguments, true);
        assert_eq!((lines.len(), hidden), (102, 0));
        let (lines, hidden) = view(&json!({"path": "y".repeat(1_000)}), false);
        assert_eq!((lines[0].chars().count(), hidden), (400, 1));
    }

    #[test]
    fn invisible_characters_are_named() {
        let (lines, _) = view(&json!({"path": "a\u{202e}b\u{1b}[2J"}), false);
        assert_eq!(lines, ["path: a<U+202E>b<U+001B>[2J"]);
    }
}
