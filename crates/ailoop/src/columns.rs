//! Columns of text at a terminal: width, clipping and wrapping.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Returns the columns of a text without control characters.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Cuts a text to a number of columns; an ellipsis takes the place of the rest.
pub(crate) fn clip(text: &str, columns: usize) -> String {
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
pub(crate) fn take_columns(text: &str, columns: usize) -> (&str, &str) {
    let mut used = 0;
    for (index, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > columns {
            return text.split_at(index);
        }
    }
    (text, "")
}

#[cfg(test)]
mod tests {
    use super::*;

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
