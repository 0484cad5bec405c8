//! Shortens texts of models and tools to one line.

use terminal::format;

/// Characters of a call's arguments that are shown at a gate.
const ARGUMENTS_CHARS_MAX: usize = 400;

/// Formats a text on one line of at most [`ARGUMENTS_CHARS_MAX`] characters.
pub(super) fn shorten(arguments: &str) -> String {
    format::cut(format::join_words(arguments), ARGUMENTS_CHARS_MAX)
}
