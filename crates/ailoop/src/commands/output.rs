//! Formats what commands print: tables, lines of JSON, short texts.

use serde_json::Value;

use crate::failure::Exit;
use crate::terminal::StdoutClosed;

/// Characters of a session's title, or a tool's description, in a table.
const TEXT_CHARS_MAX: usize = 60;

/// Returns the exit after printing. A closed stdout is no failure: its reader has what it wanted.
pub(super) fn finish(printed: Result<(), StdoutClosed>) -> Exit {
    match printed {
        Ok(()) | Err(StdoutClosed) => Exit::Done,
    }
}

/// One line of JSON for each value.
pub(super) fn json_lines(values: impl Iterator<Item = Value>) -> String {
    values.flat_map(|value| [value.to_string(), "\n".to_owned()]).collect()
}

/// Returns the first line of a text, cut with an ellipsis after [`TEXT_CHARS_MAX`].
pub(super) fn shorten(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    if line.chars().count() <= TEXT_CHARS_MAX {
        return line.to_owned();
    }
    line.chars().take(TEXT_CHARS_MAX - 1).chain(['…']).collect()
}

/// Formats a table; a column is as wide as its widest cell, and the last one is not padded.
pub(super) fn format_table(head: &[&str], rows: &[Vec<String>]) -> String {
    let cells =
        || std::iter::once(head.to_vec()).chain(rows.iter().map(|row| row.iter().map(String::as_str).collect()));
    let width = |column: usize| cells().map(|row: Vec<&str>| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: Vec<&str>| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    cells().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_cells_of_different_widths_are_aligned() {
        let rows = [vec!["a".to_owned(), "bbb".to_owned()], vec!["äää".to_owned(), "c".to_owned()]];
        assert_eq!(format_table(&["X", "Y"], &rows), "X    Y\na    bbb\näää  c\n");
    }

    #[test]
    fn shorten_text_over_limit_is_cut_with_ellipsis() {
        assert_eq!(shorten(" one\ntwo"), "one");
        assert_eq!(shorten(&"ä".repeat(61)), format!("{}…", "ä".repeat(59)));
        assert_eq!(shorten(&"ä".repeat(60)), "ä".repeat(60));
    }
}
