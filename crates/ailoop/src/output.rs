//! Formats what commands print: tables, lines of JSON, short texts.

use contract::{SessionId, Timestamp};
use serde_json::Value;
use service::clock::{Clock as _, SystemClock};
use terminal::failure::Exit;
use terminal::format;
use terminal::table::{Table, TableWidth};
use terminal::{StdoutClosed, Terminal};

use crate::args::OutputArgs;

/// Characters of a session's title, or a tool's description, in a table.
const TEXT_CHARS_MAX: usize = 60;

/// Returns the exit after printing. A closed stdout is no failure: its reader has what it wanted.
pub(crate) fn finish(printed: Result<(), StdoutClosed>) -> Exit {
    match printed {
        Ok(()) | Err(StdoutClosed) => Exit::Done,
    }
}

/// One line of JSON for each value.
pub(crate) fn json_lines(values: impl Iterator<Item = Value>) -> String {
    values.flat_map(|value| [value.to_string(), "\n".to_owned()]).collect()
}

/// Returns the first line of a text.
pub(crate) fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or_default()
}

/// Returns the first line of a text, cut with an ellipsis after [`TEXT_CHARS_MAX`].
pub(crate) fn shorten(text: &str) -> String {
    format::cut(first_line(text).to_owned(), TEXT_CHARS_MAX)
}

/// Formats an instant of the fleet for the reader of the output: for people how long ago or in how long, else as it is.
pub(crate) fn format_time(time: &str, terminal: &Terminal) -> String {
    match Timestamp::parse(time) {
        Some(at) if terminal.is_for_people() => relative_time(at, SystemClock.now()),
        Some(_) | None => time.to_owned(),
    }
}

fn relative_time(at: Timestamp, now: Timestamp) -> String {
    if at > now {
        return format!("in {}", format::age(at.since(now)));
    }
    format!("{} ago", format::age(now.since(at)))
}

/// Formats the id of a session for the reader of the output: for people the short form of a generated id, which stands
/// for it in every command.
pub(crate) fn format_session(id: &str, output: &OutputArgs, terminal: &Terminal) -> String {
    let is_short = !output.is_wide() && terminal.is_for_people();
    let session = SessionId::new(id).ok().filter(|_| is_short);
    session.as_ref().and_then(SessionId::short).unwrap_or(id).to_owned()
}

/// Returns the columns that a table may have.
pub(crate) fn table_width(output: &OutputArgs, terminal: &Terminal) -> TableWidth {
    if output.is_wide() {
        return TableWidth::Unlimited;
    }
    terminal.stdout_columns().map_or(TableWidth::File, TableWidth::Terminal)
}

/// Prints a table as the command line asks for it.
pub(crate) fn print_table(table: &Table, output: &OutputArgs, terminal: &Terminal) -> Result<(), StdoutClosed> {
    terminal.print_lines(&table.lines(table_width(output, terminal)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative_to_now() {
        let now = Timestamp::from_millis(10_000_000);
        assert_eq!(relative_time(Timestamp::from_millis(9_000_000), now), "16 min ago");
        assert_eq!(relative_time(Timestamp::from_millis(10_005_000), now), "in 5 s");
    }

    #[test]
    fn shorten_text_over_limit_is_cut_with_ellipsis() {
        assert_eq!(shorten(" one\ntwo"), "one");
        assert_eq!(shorten(&"ä".repeat(61)), format!("{}…", "ä".repeat(59)));
        assert_eq!(shorten(&"ä".repeat(60)), "ä".repeat(60));
    }
}
