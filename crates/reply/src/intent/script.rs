//! Scripts, by the ranges of their characters.

/// Whether a character is of a script without blanks between words.
pub(super) fn is_cjk(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30FF}' | '\u{4E00}'..='\u{9FFF}')
}
