//! The text that a person types: editing, several lines, and where the cursor is. Pure.

use terminal::columns::{take_columns, width};
use terminal::printable::strip_unprintable;
use unicode_width::UnicodeWidthChar as _;

/// Bytes of a message, which the fleet refuses above.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// A change of the text or the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Edit {
    Insert(String),
    Backspace,
    Delete,
    DeleteWordBefore,
    DeleteToLineStart,
    DeleteToLineEnd,
    Left,
    Right,
    WordLeft,
    WordRight,
    LineStart,
    LineEnd,
    /// To the line above; in the first line nothing changes.
    Up,
    /// To the line below; in the last line nothing changes.
    Down,
}

/// A text with a cursor.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct LineEditor {
    text: String,
    /// Position of the cursor in bytes, at the beginning of a character that has columns.
    cursor: usize,
}

/// The text as rows of the screen.
#[derive(Debug, PartialEq, Eq)]
pub struct EditorView {
    /// Rows from top to bottom.
    pub rows: Vec<String>,
    /// Row of the cursor, from 0.
    pub cursor_row: usize,
    /// Column of the cursor, from 0.
    pub cursor_column: usize,
}

impl LineEditor {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Replaces the text; the cursor goes to its end.
    pub(crate) fn set(&mut self, text: &str) {
        self.text.clear();
        self.cursor = 0;
        self.insert(text);
    }

    /// Takes the text out.
    pub(crate) fn take(&mut self) -> String {
        self.cursor = 0;
        std::mem::take(&mut self.text)
    }

    /// Applies an edit; returns whether anything changed.
    pub(crate) fn apply(&mut self, edit: &Edit) -> bool {
        let before = (self.text.len(), self.cursor);
        match edit {
            Edit::Insert(text) => self.insert(text),
            Edit::Backspace => self.delete_to(self.previous(self.cursor)),
            Edit::Delete => self.delete_to(self.next(self.cursor)),
            Edit::DeleteWordBefore => self.delete_to(self.word_start()),
            Edit::DeleteToLineStart => self.delete_to(self.line_start(self.cursor)),
            Edit::DeleteToLineEnd => self.delete_to(self.line_end(self.cursor)),
            Edit::Left => self.cursor = self.previous(self.cursor),
            Edit::Right => self.cursor = self.next(self.cursor),
            Edit::WordLeft => self.cursor = self.word_start(),
            Edit::WordRight => self.cursor = self.word_end(),
            Edit::LineStart => self.cursor = self.line_start(self.cursor),
            Edit::LineEnd => self.cursor = self.line_end(self.cursor),
            Edit::Up => self.move_up(),
            Edit::Down => self.move_down(),
        }
        before != (self.text.len(), self.cursor)
    }

    /// Whether the line before the cursor ends with a backslash, so that Enter continues the text.
    pub(crate) fn is_continued(&self) -> bool {
        self.cursor == self.text.len() && self.text.ends_with('\\') && !self.text.ends_with("\\\\")
    }

    /// Lays the text out behind a label of the first row.
    pub(crate) fn view(&self, label: &str, columns: usize) -> EditorView {
        let indent = width(label);
        let room = columns.saturating_sub(indent + 1).max(1);
        let mut view = EditorView { rows: Vec::new(), cursor_row: 0, cursor_column: indent };
        let mut start = 0;
        for line in self.text.split('\n') {
            let (mut rest, mut offset) = (line, start);
            loop {
                let (row, after) = take_columns(rest, room);
                // A character that is wider than the row.
                let (row, after) = if row.is_empty() { (rest, "") } else { (row, after) };
                let end = offset + row.len();
                let is_last_of_line = after.is_empty();
                if (offset..end).contains(&self.cursor) || (is_last_of_line && self.cursor == end) {
                    view.cursor_row = view.rows.len();
                    view.cursor_column = indent + width(&self.text[offset..self.cursor]);
                }
                let label = if view.rows.is_empty() { label.to_owned() } else { " ".repeat(indent) };
                view.rows.push(format!("{label}{row}"));
                if is_last_of_line {
                    break;
                }
                (rest, offset) = (after, end);
            }
            start += line.len() + 1;
        }
        view
    }

    fn insert(&mut self, text: &str) {
        let text = strip_unprintable(&text.replace("\r\n", "\n").replace('\r', "\n").replace('\t', "    "));
        if self.text.len() + text.len() > TEXT_BYTES_MAX {
            return;
        }
        self.text.insert_str(self.cursor, &text);
        self.cursor += text.len();
    }

    /// Deletes between the cursor and another position.
    fn delete_to(&mut self, position: usize) {
        let (from, to) = (self.cursor.min(position), self.cursor.max(position));
        self.text.replace_range(from..to, "");
        self.cursor = from;
    }

    fn previous(&self, from: usize) -> usize {
        let mut characters = self.text[..from].char_indices().rev();
        characters.find(|(_, c)| has_columns(*c)).map_or(0, |(index, _)| index)
    }

    fn next(&self, from: usize) -> usize {
        let mut characters = self.text[from..].char_indices().skip(1);
        characters.find(|(_, c)| has_columns(*c)).map_or(self.text.len(), |(index, _)| from + index)
    }

    fn line_start(&self, from: usize) -> usize {
        self.text[..from].rfind('\n').map_or(0, |index| index + 1)
    }

    fn line_end(&self, from: usize) -> usize {
        self.text[from..].find('\n').map_or(self.text.len(), |index| from + index)
    }

    fn word_start(&self) -> usize {
        let before = self.text[..self.cursor].trim_end();
        before.rfind(char::is_whitespace).map_or(0, |index| self.next(index))
    }

    fn word_end(&self) -> usize {
        let after = &self.text[self.cursor..];
        let start = after.len() - after.trim_start().len();
        after[start..].find(char::is_whitespace).map_or(self.text.len(), |index| self.cursor + start + index)
    }

    fn move_up(&mut self) {
        let start = self.line_start(self.cursor);
        if start > 0 {
            let above = self.line_start(start - 1);
            self.move_into(above, start - 1, width(&self.text[start..self.cursor]));
        }
    }

    fn move_down(&mut self) {
        let (start, end) = (self.line_start(self.cursor), self.line_end(self.cursor));
        if end < self.text.len() {
            self.move_into(end + 1, self.line_end(end + 1), width(&self.text[start..self.cursor]));
        }
    }

    fn move_into(&mut self, start: usize, end: usize, columns: usize) {
        self.cursor = start + take_columns(&self.text[start..end], columns).0.len();
    }
}

/// Whether the cursor may stand before a character; marks belong to the letter before them.
fn has_columns(c: char) -> bool {
    c == '\n' || c.width().is_some_and(|width| width > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types a text and applies edits; the cursor is shown as `|`.
    fn check(text: &str, edits: &[Edit], expect: &str) {
        let mut editor = LineEditor::default();
        editor.set(text);
        for edit in edits {
            editor.apply(edit);
        }
        let mut shown = editor.text().to_owned();
        shown.insert(editor.cursor, '|');
        assert_eq!(shown, expect, "{text:?} {edits:?}");
    }

    #[test]
    fn edits_change_text_and_cursor() {
        let insert = |text: &str| Edit::Insert(text.to_owned());
        check("abc", &[Edit::Left, insert("x")], "abx|c");
        check("abc", &[Edit::LineStart, Edit::Delete, Edit::Backspace], "|bc");
        check("one two", &[Edit::DeleteWordBefore], "one |");
        check("one two ", &[Edit::DeleteWordBefore], "one |");
        check("one two", &[Edit::WordLeft, Edit::WordLeft, Edit::WordRight], "one| two");
        check("a\nbc\nd", &[Edit::Up, Edit::DeleteToLineEnd], "a\nb|\nd");
        check("abc\nd\nefg", &[Edit::Up, Edit::Up, Edit::Down], "abc\nd|\nefg");
        check("ab\ncd", &[Edit::DeleteToLineStart, Edit::Backspace], "ab|");
        check("ae\u{301}", &[Edit::Left], "a|e\u{301}");
        check("ae\u{301}", &[Edit::Backspace], "a|");
        check("", &[Edit::Left, Edit::Up, Edit::Backspace, Edit::Delete], "|");
    }

    #[test]
    fn pasted_text_loses_control_characters_and_keeps_lines() {
        check("", &[Edit::Insert("a\r\nb\u{1b}[2J\tc\u{202e}".to_owned())], "a\nb[2J    c|");
    }

    #[test]
    fn text_above_the_limit_is_not_inserted() {
        let mut editor = LineEditor::default();
        assert!(editor.apply(&Edit::Insert("x".repeat(TEXT_BYTES_MAX))));
        assert!(!editor.apply(&Edit::Insert("y".to_owned())));
    }

    #[test]
    fn view_wraps_rows_and_finds_the_cursor() {
        let mut editor = LineEditor::default();
        editor.set("abcdefgh\n日本");
        let view = editor.view("> ", 8);
        assert_eq!(view.rows, ["> abcde", "  fgh", "  日本"]);
        assert_eq!((view.cursor_row, view.cursor_column), (2, 6));
        for _ in 0..6 {
            editor.apply(&Edit::Left);
        }
        let view = editor.view("> ", 8);
        assert_eq!((view.cursor_row, view.cursor_column), (1, 2));
        editor.set("");
        assert_eq!(editor.view("> ", 8), EditorView { rows: vec!["> ".to_owned()], cursor_row: 0, cursor_column: 2 });
    }

    #[test]
    fn line_that_ends_with_one_backslash_is_continued() {
        let mut editor = LineEditor::default();
        for (text, is_continued) in [("a\\", true), ("a\\\\", false), ("a", false), ("", false)] {
            editor.set(text);
            assert_eq!(editor.is_continued(), is_continued, "{text}");
        }
    }
}
