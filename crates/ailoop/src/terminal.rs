//! The only module that prints: data to stdout, notes to stderr.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};

use crate::columns::width;
use crate::failure::CommandFailure;
use crate::printable::{escape_json, strip_control, strip_unprintable};

/// Text for one of the two output streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    /// Data for stdout, printed without an added line end.
    Data(String),
    /// A line for stderr.
    Note(Style, String),
    /// A line of formatted text for stdout.
    Line(StyledLine),
}

/// A line of text in parts that look differently. It never has control characters.
pub(crate) type StyledLine = Vec<Span>;

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) style: TextStyle,
    pub(crate) text: String,
}

impl Span {
    pub(crate) fn new(style: TextStyle, text: impl Into<String>) -> Self {
        Self { style, text: text.into() }
    }
}

/// Returns the columns of a line.
pub(crate) fn line_width(line: &StyledLine) -> usize {
    line.iter().map(|span| width(&span.text)).sum()
}

/// How formatted text looks if styles are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextStyle {
    Plain,
    Heading,
    Strong,
    Emphasis,
    Code,
    Faint,
}

impl TextStyle {
    const fn escape(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Heading => "\x1b[1;4m",
            Self::Strong => "\x1b[1m",
            Self::Emphasis => "\x1b[3m",
            Self::Code => "\x1b[36m",
            Self::Faint => "\x1b[2m",
        }
    }
}

/// How a note looks if colours are on. The words carry the meaning; colours only help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Faint,
    Good,
    Warn,
    Bad,
}

impl Style {
    const fn escape(self) -> &'static str {
        match self {
            Self::Plain => "",
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
#[derive(Debug)]
pub struct Terminal {
    is_stdout_tty: bool,
    is_stderr_tty: bool,
    allows_colours: bool,
}

/// How replies and tool calls are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Columns of a line.
    pub(crate) columns: usize,
    /// How the text of replies is shown.
    pub(crate) reply: ReplyFormat,
}

/// How the text of replies is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyFormat {
    /// As the model wrote it, when it is complete: for files and pipes.
    Raw,
    /// As Markdown, block by block while it is streamed. Without styles, the marks of emphasis and code stay.
    Markdown { has_styles: bool },
}

/// Columns where stdout and stderr are no terminal, or the size is unknown.
const COLUMNS_DEFAULT: usize = 100;
/// Fewest columns that a layout assumes.
const COLUMNS_MIN: usize = 20;

impl Terminal {
    /// Detects whether stdout and stderr are terminals. A non-empty `NO_COLOR` switches colours off, as does
    /// `TERM=dumb`.
    pub fn new() -> Self {
        let (is_stdout_tty, is_stderr_tty) = (io::stdout().is_terminal(), io::stderr().is_terminal());
        let allows_colours =
            supports_colours(std::env::var_os("NO_COLOR").as_deref(), std::env::var_os("TERM").as_deref());
        Self { is_stdout_tty, is_stderr_tty, allows_colours }
    }

    /// Returns the layout of what is printed now; the size of a terminal may change.
    pub(crate) fn layout(&self) -> Layout {
        let is_tty = self.is_stdout_tty || self.is_stderr_tty;
        let size = if is_tty { crossterm::terminal::size().ok() } else { None };
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
    pub(crate) fn print_data(&self, text: &str) -> Result<(), StdoutClosed> {
        write_stdout(&if self.is_stdout_tty { strip_unprintable(text) } else { strip_control(text) })
    }

    /// Prints text in the place of the last one: on a terminal after `clear`, elsewhere below it.
    pub(crate) fn print_screen(&self, clear: &str, text: &str) -> Result<(), StdoutClosed> {
        let clear = if self.is_stdout_tty { clear } else { "" };
        write_stdout(&format!("{clear}{}", strip_unprintable(text)))
    }

    /// Prints a frame of a chat: text of [`format_output`] and sequences that move the cursor.
    pub(crate) fn print_frame(frame: &str) -> Result<(), StdoutClosed> {
        write_stdout(frame)
    }

    /// Whether a chat can redraw the last rows of the terminal.
    pub(crate) fn can_redraw(&self) -> bool {
        self.is_stdout_tty && io::stdin().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
    }

    /// Whether stdout shows colours and styles.
    pub(crate) fn has_styles(&self) -> bool {
        self.is_stdout_tty && self.allows_colours
    }

    /// Prints JSON to stdout; its value stays as it is.
    pub fn print_json(&self, text: &str) -> Result<(), StdoutClosed> {
        write_stdout(&escape_json(text))
    }

    /// Prints a line to stderr. A closed stderr is ignored.
    pub(crate) fn note(&self, style: Style, text: &str) {
        let mut out = io::stderr().lock();
        let text = if self.is_stderr_tty { strip_unprintable(text) } else { strip_control(text) };
        let _closed = if self.is_stderr_tty && self.allows_colours && style != Style::Plain {
            writeln!(out, "{}{text}\x1b[0m", style.escape())
        } else {
            writeln!(out, "{text}")
        };
    }

    /// Prints the outputs of a renderer.
    pub(crate) fn print_outputs(&self, outputs: &[Output]) -> Result<(), StdoutClosed> {
        for output in outputs {
            match output {
                Output::Data(text) => self.print_data(text)?,
                Output::Note(style, text) => self.note(*style, text),
                Output::Line(line) => {
                    write_stdout(&(format_line(line, self.is_stdout_tty && self.allows_colours) + "\n"))?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn print_failure(&self, failure: &CommandFailure) {
        self.note(Style::Bad, &failure.to_string());
    }
}

impl Default for Terminal {
    fn default() -> Self {
        Self::new()
    }
}

/// Formats an output as lines for a terminal.
pub(crate) fn format_output(output: &Output, has_styles: bool) -> Vec<String> {
    match output {
        Output::Data(text) => strip_unprintable(text).lines().map(str::to_owned).collect(),
        Output::Note(style, text) => {
            let escape = if has_styles { style.escape() } else { "" };
            let reset = if escape.is_empty() { "" } else { "\x1b[0m" };
            strip_unprintable(text).split('\n').map(|line| format!("{escape}{line}{reset}")).collect()
        }
        Output::Line(line) => vec![format_line(line, has_styles)],
    }
}

/// Formats a line with the escape sequences of its styles.
pub(crate) fn format_line(line: &StyledLine, has_styles: bool) -> String {
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

fn write_stdout(text: &str) -> Result<(), StdoutClosed> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|_| StdoutClosed)
}

/// Whether a terminal with these variables gets colours.
fn supports_colours(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_with_no_color_or_dumb_gets_no_colours() {
        let check = |no_color: Option<&str>, term: Option<&str>| {
            supports_colours(no_color.map(OsStr::new), term.map(OsStr::new))
        };
        assert!(check(None, Some("xterm-256color")) && check(Some(""), Some("xterm")) && check(None, None));
        assert!(!check(Some("1"), Some("xterm")) && !check(None, Some("dumb")));
    }
}
