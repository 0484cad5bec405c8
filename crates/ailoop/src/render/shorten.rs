//! Shortens texts of models and tools to one line.

/// Characters of a call's arguments that are shown at a gate.
const ARGUMENTS_CHARS_MAX: usize = 400;

/// Formats a text on one line of at most [`ARGUMENTS_CHARS_MAX`] characters.
pub(super) fn shorten(arguments: &str) -> String {
    let line = arguments.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= ARGUMENTS_CHARS_MAX {
        return line;
    }
    line.chars().take(ARGUMENTS_CHARS_MAX - 1).chain(['…']).collect()
}
