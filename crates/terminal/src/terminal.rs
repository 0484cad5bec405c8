//! The only module that prints: data to stdout, notes to stderr.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};

use crate::columns::{clip, width, wrap_words};
use crate::failure::CommandFailure;
use crate::printable::{escape_json, strip_control, strip_unprintable};

/// Text for one of the two output streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Data for stdout, printed without an added line end.
    Data(String),
    /// A line for stderr.
    Note(Style, String),
    /// A line of formatted text for stdout.
    Line(StyledLine),
}

/// A line of text in parts that look differently. It never has control characters.
pub type StyledLine = Vec<StyledSpan>;

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StyledSpan {
    pub(crate) style: Style,
    /// Text of the part, without line ends.
    pub text: String,
}

impl StyledSpan {
    /// Makes a part of a line.
    pub fn new(style: Style, text: impl Into<String>) -> Self {
        Self { style, text: text.into() }
    }
}

/// Returns the columns of a line.
pub fn line_width(line: &StyledLine) -> usize {
    line.iter().map(|span| width(&span.text)).sum()
}

/// Style of a text, if styles are on. The words carry the meaning; colours only help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Text without a style.
    Plain,
    /// Title of a section.
    Heading,
    /// Text of great weight.
    Strong,
    /// Text that is stressed.
    Emphasis,
    /// Text of a program.
    Code,
    /// Text that matters less.
    Faint,
    /// Shows that all is well.
    Good,
    /// Shows that somebody should look.
    Warn,
    /// Shows that something failed.
    Bad,
}

impl Style {
    const fn escape(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Heading => "\x1b[1;4m",
            Self::Strong => "\x1b[1m",
            Self::Emphasis => "\x1b[3m",
            Self::Code => "\x1b[36m",
            Self::Faint => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Warn => "\x1b[33m",
            Self::Bad => "\x1b[31m",
        }
    }
}

/// The reader of stdout has closed it; the command ends without a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StdoutClosed;

/// Stdout and stderr, and what they can show.
#[derive(Debug, Clone)]
pub struct Terminal {
    is_stdout_tty: bool,
    is_stderr_tty: bool,
    allows_colours: bool,
    notes: NoteFilter,
}

/// Filter of the notes that are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoteFilter {
    All,
    /// Warnings and failures only.
    Important,
}

/// Layout of replies and tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Columns of a line.
    pub columns: usize,
    /// Format of the text of replies.
    pub reply: ReplyFormat,
}

/// Format of the text of replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyFormat {
    /// As the model wrote it, when it is complete: for files and pipes.
    Raw,
    /// As Markdown, block by block while it is streamed. Without styles, the marks of emphasis and code stay.
    Markdown {
        /// Whether colours and styles are shown.
        has_styles: bool,
    },
}

/// Begins and ends a frame, which terminals that know it show at once.
pub const BEGIN_FRAME: &str = "\x1b[?2026h\x1b[?25l";
/// Ends the frame that [`BEGIN_FRAME`] begins.
pub const END_FRAME: &str = "\x1b[?25h\x1b[?2026l";
/// Columns where stdout and stderr are no terminal, or the size is unknown.
const COLUMNS_DEFAULT: usize = 100;
/// Columns by which further lines of a note are indented more than its first one.
const HANGING_INDENT: usize = 2;
/// Fewest columns that a layout assumes.
const COLUMNS_MIN: usize = 20;

impl Terminal {
    /// Detects whether stdout and stderr are terminals. A non-empty `NO_COLOR` switches colours off, as does
    /// `TERM=dumb`.
    pub fn new() -> Self {
        let (is_stdout_tty, is_stderr_tty) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let allows_colours =
            supports_colours(std::env::var_os("NO_COLOR").as_deref(), std::env::var_os("TERM").as_deref());
        Self { is_stdout_tty, is_stderr_tty, allows_colours, notes: NoteFilter::All }
    }

    /// Returns the terminal without notes, except warnings and failures.
    #[must_use]
    pub fn without_notes(&self) -> Self {
        Self { notes: NoteFilter::Important, ..*self }
    }

    /// Returns the layout of what is printed now; the size of a terminal may change.
    pub fn layout(&self) -> Layout {
        let is_tty = self.is_stdout_tty || self.is_stderr_tty;
        // A terminal that does not say its size has none.
        let size = if is_tty { crossterm::terminal::size().ok().filter(|(columns, _)| *columns > 0) } else { None };
        let columns = size.map_or(COLUMNS_DEFAULT, |(columns, _)| usize::from(columns).max(COLUMNS_MIN));
        let reply = if self.is_stdout_tty {
            ReplyFormat::Markdown { has_styles: self.allows_colours }
        } else {
            ReplyFormat::Raw
        };
        Layout { columns, reply }
    }

    /// Prints data to stdout without control characters. Files and pipes get none either, since a terminal may show
    /// them.
    pub fn print_data(&self, text: &str) -> Result<(), StdoutClosed> {
        write_stdout(&if self.is_stdout_tty { strip_unprintable(text) } else { strip_control(text) })
    }

    /// Prints lines in the place of the last ones; elsewhere than at a terminal below them. Rows are written over in one
    /// frame, and cut where the terminal ends, so that nothing flickers.
    pub fn print_screen(&self, lines: &[StyledLine], is_first: bool) -> Result<(), StdoutClosed> {
        if !self.is_stdout_tty {
            return write_stdout(&format_lines(lines, false));
        }
        let (columns, rows) = crossterm::terminal::size().unwrap_or((u16::MAX, u16::MAX));
        let begin = if is_first { "\x1b[2J" } else { "" };
        let mut frame = format!("{BEGIN_FRAME}{begin}\x1b[H");
        for (index, line) in lines.iter().take(usize::from(rows)).enumerate() {
            if index > 0 {
                frame.push_str("\r\n");
            }
            frame.push_str(&format_line(&clip_line(line, usize::from(columns)), self.has_styles()));
            frame.push_str("\x1b[K");
        }
        frame.push_str("\x1b[J\r\n");
        frame.push_str(END_FRAME);
        write_stdout(&frame)
    }

    /// Prints a frame of a chat: text of [`format_output`] and sequences that move the cursor.
    pub fn print_frame(frame: &str) -> Result<(), StdoutClosed> {
        write_stdout(frame)
    }

    /// Whether the last rows of the terminal can be redrawn, and keys be read.
    pub fn can_redraw(&self) -> bool {
        self.is_stdout_tty && io::stdin().is_terminal() && can_move_cursor()
    }

    /// Whether the last rows of the terminal can be redrawn, and nothing else is printed below them.
    pub fn can_redraw_rows(&self) -> bool {
        self.is_stdout_tty && self.is_stderr_tty && can_move_cursor()
    }

    /// Whether stdout shows colours and styles.
    pub fn has_styles(&self) -> bool {
        self.is_stdout_tty && self.allows_colours
    }

    /// Prints JSON to stdout; its value stays as it is.
    pub fn print_json(&self, text: &str) -> Result<(), StdoutClosed> {
        write_stdout(&escape_json(text))
    }

    /// Whether a person reads stdout: it is a terminal.
    pub fn is_for_people(&self) -> bool {
        self.is_stdout_tty
    }

    /// Returns the columns of the terminal on stdout, if there is one.
    pub fn stdout_columns(&self) -> Option<usize> {
        self.is_stdout_tty.then(|| self.layout().columns)
    }

    /// Prints lines of formatted text to stdout.
    pub fn print_lines(&self, lines: &[StyledLine]) -> Result<(), StdoutClosed> {
        write_stdout(&format_lines(lines, self.has_styles()))
    }

    /// Prints a line to stderr. A closed stderr is ignored.
    pub fn note(&self, style: Style, text: &str) {
        if self.notes == NoteFilter::Important && !matches!(style, Style::Warn | Style::Bad) {
            return;
        }
        let has_styles = self.is_stderr_tty && self.allows_colours;
        let lines = if self.is_stderr_tty {
            format_note(style, text, has_styles, Some(self.layout().columns)).join("\n")
        } else {
            strip_control(text)
        };
        let mut out = io::stderr().lock();
        let _closed = writeln!(out, "{lines}");
    }

    /// Prints the outputs of a renderer.
    pub fn print_outputs(&self, outputs: &[Output]) -> Result<(), StdoutClosed> {
        for output in outputs {
            match output {
                Output::Data(text) => self.print_data(text)?,
                Output::Note(style, text) => self.note(*style, text),
                Output::Line(line) => write_stdout(&(format_line(line, self.has_styles()) + "\n"))?,
            }
        }
        Ok(())
    }

    /// Prints the failure of a command to stderr.
    pub fn print_failure(&self, failure: &CommandFailure) {
        self.note(Style::Bad, &failure.to_string());
    }
}

impl Default for Terminal {
    fn default() -> Self {
        Self::new()
    }
}

/// Formats an output as lines for a terminal. With a number of columns, notes are wrapped.
pub fn format_output(output: &Output, has_styles: bool, columns: Option<usize>) -> Vec<String> {
    match output {
        Output::Data(text) => strip_unprintable(text).lines().map(str::to_owned).collect(),
        Output::Note(style, text) => format_note(*style, text, has_styles, columns),
        Output::Line(line) => vec![format_line(line, has_styles)],
    }
}

fn format_note(style: Style, text: &str, has_styles: bool, columns: Option<usize>) -> Vec<String> {
    let escape = if has_styles { style.escape() } else { "" };
    let reset = if escape.is_empty() { "" } else { "\x1b[0m" };
    let text = strip_unprintable(text);
    let lines = text.split('\n').flat_map(|line| match columns {
        Some(columns) => wrap_note(line, columns),
        None => vec![line.to_owned()],
    });
    lines.map(|line| format!("{escape}{line}{reset}")).collect()
}

/// Wraps a line at words; further lines stand below its text.
fn wrap_note(line: &str, columns: usize) -> Vec<String> {
    let text = line.trim_start_matches(' ');
    let indent = line.len() - text.len();
    // Only an indent that leaves room for text is kept.
    if width(line) <= columns || columns < indent + COLUMNS_MIN {
        return vec![line.to_owned()];
    }
    let first = wrap_words(text, columns - indent).first().copied().unwrap_or_default();
    let rest = wrap_words(text[first.len()..].trim_start(), columns - indent - HANGING_INDENT);
    let below = rest.into_iter().map(|part| format!("{}{part}", " ".repeat(indent + HANGING_INDENT)));
    std::iter::once(format!("{}{first}", " ".repeat(indent))).chain(below).collect()
}

/// Formats a line with the escape sequences of its styles.
pub fn format_line(line: &StyledLine, has_styles: bool) -> String {
    let mut text = String::new();
    for span in line {
        let escape = if has_styles { span.style.escape() } else { "" };
        text.push_str(escape);
        text.push_str(&strip_unprintable(&span.text));
        if !escape.is_empty() {
            text.push_str("\x1b[0m");
        }
    }
    text
}

/// Cuts a line to a number of columns.
pub fn clip_line(line: &StyledLine, columns: usize) -> StyledLine {
    let mut room = columns;
    let mut clipped = Vec::new();
    for span in line {
        let text = clip(&span.text, room);
        room -= width(&text);
        clipped.push(StyledSpan { style: span.style, text });
    }
    clipped
}

/// Formats lines, each with its end.
fn format_lines(lines: &[StyledLine], has_styles: bool) -> String {
    lines.iter().map(|line| format_line(line, has_styles) + "\n").collect()
}

fn write_stdout(text: &str) -> Result<(), StdoutClosed> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|_| StdoutClosed)
}

fn can_move_cursor() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Whether a terminal with these variables gets colours.
fn supports_colours(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_is_wrapped_below_its_text() {
        let check = |line: &str, expect: &[&str]| assert_eq!(wrap_note(line, 30), expect);
        check("short", &["short"]);
        check("  tool read_file a.rs was denied by somebody", &["  tool read_file a.rs was", "    denied by somebody"]);
        check("session 0123456789  agent Eamonn the", &["session 0123456789", "  agent Eamonn the"]);
        let indent = " ".repeat(20);
        check(&format!("{indent}no room for words"), &[&format!("{indent}no room for words")]);
    }

    #[test]
    fn terminal_with_no_color_or_dumb_gets_no_colours() {
        let check = |no_color: Option<&str>, term: Option<&str>| {
            supports_colours(no_color.map(OsStr::new), term.map(OsStr::new))
        };
        assert!(check(None, Some("xterm-256color")) && check(Some(""), Some("xterm")) && check(None, None));
        assert!(!check(Some("1"), Some("xterm")) && !check(None, Some("dumb")));
    }
}
