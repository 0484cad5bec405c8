//! The only module that prints: data to stdout, notes to stderr.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};

use crate::failure::CommandFailure;
use crate::printable::{escape_json, strip_control, strip_unprintable};

/// Text for one of the two output streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    /// Data for stdout, printed without an added line end.
    Data(String),
    /// A line for stderr.
    Note(Style, String),
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
    has_colours: bool,
}

impl Terminal {
    /// Detects whether stdout and stderr are terminals. A non-empty `NO_COLOR` switches colours off, as does
    /// `TERM=dumb`.
    pub fn new() -> Self {
        let is_stderr_tty = io::stderr().is_terminal();
        let has_colours = is_stderr_tty
            && supports_colours(std::env::var_os("NO_COLOR").as_deref(), std::env::var_os("TERM").as_deref());
        Self { is_stdout_tty: io::stdout().is_terminal(), is_stderr_tty, has_colours }
    }

    /// Whether stdout is a terminal, so that text is shown while it is streamed.
    pub(crate) fn is_live(&self) -> bool {
        self.is_stdout_tty
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

    /// Prints JSON to stdout; its value stays as it is.
    pub fn print_json(&self, text: &str) -> Result<(), StdoutClosed> {
        write_stdout(&escape_json(text))
    }

    /// Prints a line to stderr. A closed stderr is ignored.
    pub(crate) fn note(&self, style: Style, text: &str) {
        let mut out = io::stderr().lock();
        let text = if self.is_stderr_tty { strip_unprintable(text) } else { strip_control(text) };
        let _closed = if self.has_colours && style != Style::Plain {
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
