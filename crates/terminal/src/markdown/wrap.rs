//! Wraps formatted text at the end of lines.

use crate::columns::{take_columns, width};
use crate::terminal::{Style, StyledLine, StyledSpan, line_width};

/// Wraps spans to lines of at most this many columns. A newline in a span ends its line; a longer word is split.
pub(super) fn wrap(spans: &StyledLine, columns: usize) -> Vec<StyledLine> {
    let columns = columns.max(1);
    let mut lines: Vec<StyledLine> = vec![Vec::new()];
    let mut used = 0;
    for (style, word) in words(spans) {
        if word == "\n" {
            lines.push(Vec::new());
            used = 0;
            continue;
        }
        let mut rest = word;
        let space = usize::from(used > 0 && rest.starts_with(' '));
        if used > 0 && !take_columns(rest.trim_end(), columns.saturating_sub(used)).1.is_empty() {
            trim_line(&mut lines);
            lines.push(Vec::new());
            used = 0;
            rest = &rest[space..];
        }
        // The head and the tail are counted once: a word may be as long as a reply.
        while rest.len() > columns {
            let (head, tail) = take_columns(rest, columns);
            // A character that is wider than the line has no head.
            if head.is_empty() || tail.trim_end().is_empty() {
                break;
            }
            push(&mut lines, style, head);
            lines.push(Vec::new());
            rest = tail;
        }
        if used == 0 && lines.len() > 1 {
            rest = rest.trim_start();
        }
        used += width(rest);
        push(&mut lines, style, rest);
    }
    trim_line(&mut lines);
    lines
}

/// Splits spans into words, each with the spaces before it, and line breaks.
fn words(spans: &StyledLine) -> Vec<(Style, &str)> {
    let mut words = Vec::new();
    for part in spans {
        let mut rest = part.text.as_str();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('\n') {
                words.push((part.style, &rest[..1]));
                rest = after;
                continue;
            }
            let start = rest.find(|c: char| c != ' ').unwrap_or(rest.len());
            let end = rest[start..].find([' ', '\n']).map_or(rest.len(), |end| start + end);
            let (word, after) = rest.split_at(end);
            words.push((part.style, word));
            rest = after;
        }
    }
    words
}

fn push(lines: &mut [StyledLine], style: Style, text: &str) {
    let Some(line) = lines.last_mut() else { return };
    match line.last_mut() {
        Some(last) if last.style == style => last.text.push_str(text),
        Some(_) | None if text.is_empty() => {}
        Some(_) | None => line.push(StyledSpan::new(style, text)),
    }
}

/// Removes spaces at the end of the last line.
fn trim_line(lines: &mut [StyledLine]) {
    let Some(line) = lines.last_mut() else { return };
    while let Some(last) = line.last_mut() {
        last.text.truncate(last.text.trim_end().len());
        if !last.text.is_empty() {
            return;
        }
        line.pop();
    }
}

/// Fills a line with spaces up to a number of columns.
pub(super) fn pad(line: &mut StyledLine, columns: usize) {
    let missing = columns.saturating_sub(line_width(line));
    if missing > 0 {
        line.push(StyledSpan::new(Style::Plain, " ".repeat(missing)));
    }
}
