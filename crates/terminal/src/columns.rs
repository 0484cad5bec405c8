//! Columns of text at a terminal: width, clipping and wrapping.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Returns the columns of a text without control characters.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Cuts a text to a number of columns; an ellipsis takes the place of the rest.
pub fn clip(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut clipped = take_columns(text, columns.saturating_sub(1)).0.to_owned();
    if columns > 0 {
        clipped.push('…');
    }
    clipped
}

/// Splits a text after at most this many columns.
pub fn take_columns(text: &str, columns: usize) -> (&str, &str) {
    let mut used = 0;
    for (index, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > columns {
            return text.split_at(index);
        }
    }
    (text, "")
}

/// Splits a text into lines of at most this many columns, at spaces where there are any. A gap of several spaces between
/// parts of a line is preferred to a single space.
pub fn wrap_words(text: &str, columns: usize) -> Vec<&str> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    let mut rest = text.trim_end();
    while !rest.is_empty() {
        let (head, tail) = take_columns(rest, columns);
        if tail.is_empty() {
            lines.push(rest);
            break;
        }
        // A space right after the line ends it, too.
        let end = head.len() + usize::from(tail.starts_with(' '));
        let text_begins = head.len() - head.trim_start().len();
        let candidates = &rest[..end];
        let gap = candidates.rfind("  ").filter(|at| *at >= end / 2);
        let space = gap.or_else(|| candidates.rfind(' ')).filter(|at| *at > text_begins);
        let at = space.unwrap_or_else(|| if head.is_empty() { first_character(rest) } else { head.len() });
        lines.push(rest[..at].trim_end());
        rest = rest[at..].trim_start();
    }
    lines
}

/// Returns the bytes of the first character, which may be wider than a line.
fn first_character(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrap_words_prefers_gaps_and_splits_long_words() {
        assert_eq!(wrap_words("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap_words("one two", 7), ["one two"]);
        assert_eq!(wrap_words("ab cde  f g h", 12), ["ab cde", "f g h"]);
        assert_eq!(wrap_words("abcdefgh ij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap_words("  abcdefgh", 4), ["  ab", "cdef", "gh"]);
        assert_eq!(wrap_words("日本", 1), ["日", "本"]);
        assert_eq!(wrap_words("", 4), Vec::<&str>::new());
    }

    #[test]
    fn clip_wide_text_counts_columns() {
        assert_eq!(clip("abc", 3), "abc");
        assert_eq!(clip("abcd", 3), "ab…");
        assert_eq!(clip("日本語", 5), "日本…");
        assert_eq!(clip("日本語", 4), "日…");
        assert_eq!(clip("abc", 0), "");
    }

    #[test]
    fn take_columns_keeps_marks_with_their_letter() {
        assert_eq!(take_columns("ae\u{301}b", 2), ("ae\u{301}", "b"));
        assert_eq!(take_columns("日本", 1), ("", "日本"));
    }
}
