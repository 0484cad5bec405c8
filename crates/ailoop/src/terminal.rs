//! The only module that prints: data to stdout, chatter to stderr.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Write as _};

use crate::failure::Failure;
use crate::printable::{escape_json, for_screen, without_control};

/// Something to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// What was asked for, as it is: to stdout, without a line end of its own.
    Data(String),
    /// A line about it: to stderr.
    Note(Style, String),
}

/// How a note looks where colours are wanted. Words carry the meaning; colours only help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// As it is.
    Plain,
    /// Of less weight.
    Faint,
    /// It went well.
    Good,
    /// Somebody should look.
    Warn,
    /// It failed.
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

/// Nobody reads stdout any more: the command ends without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderGone;

/// Stdout and stderr, and what they can show.
#[derive(Debug)]
pub struct Terminal {
    live: bool,
    screen: bool,
    colour: bool,
}

impl Terminal {
    /// Finds out what the two streams are. `NO_COLOR` with any value switches colours off, and so does `TERM=dumb`.
    pub fn new() -> Self {
        let screen = io::stderr().is_terminal();
        let colour =
            screen && has_colours(std::env::var_os("NO_COLOR").as_deref(), std::env::var_os("TERM").as_deref());
        Self { live: io::stdout().is_terminal(), screen, colour }
    }

    /// Whether stdout is a screen, so that text is shown while it comes.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Prints data to stdout, without control characters: also a file or a pipe may end at a terminal.
    pub fn data(&self, text: &str) -> Result<(), ReaderGone> {
        write(&if self.live { for_screen(text) } else { without_control(text) })
    }

    /// Prints JSON to stdout; its value stays as it is.
    pub fn json(&self, text: &str) -> Result<(), ReaderGone> {
        write(&escape_json(text))
    }

    /// Prints a line to stderr; a stderr that nobody reads is no reason to stop.
    pub fn note(&self, style: Style, text: &str) {
        let mut out = io::stderr().lock();
        let text = if self.screen { for_screen(text) } else { without_control(text) };
        let _unread = if self.colour && style != Style::Plain {
            writeln!(out, "{}{text}\x1b[0m", style.escape())
        } else {
            writeln!(out, "{text}")
        };
    }

    /// Prints what a renderer wants to be printed.
    pub fn show(&self, outputs: &[Output]) -> Result<(), ReaderGone> {
        for output in outputs {
            match output {
                Output::Data(text) => self.data(text)?,
                Output::Note(style, text) => self.note(*style, text),
            }
        }
        Ok(())
    }

    /// Prints why the command failed.
    pub fn failure(&self, failure: &Failure) {
        self.note(Style::Bad, &failure.to_string());
    }
}

impl Default for Terminal {
    fn default() -> Self {
        Self::new()
    }
}

fn write(text: &str) -> Result<(), ReaderGone> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|_| ReaderGone)
}

/// Whether a terminal is to be written to in colours.
fn has_colours(no_color: Option<&OsStr>, term: Option<&OsStr>) -> bool {
    no_color.is_none_or(OsStr::is_empty) && term.is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_with_no_color_or_dumb_gets_no_colours() {
        let check =
            |no_color: Option<&str>, term: Option<&str>| has_colours(no_color.map(OsStr::new), term.map(OsStr::new));
        assert!(check(None, Some("xterm-256color")) && check(Some(""), Some("xterm")) && check(None, None));
        assert!(!check(Some("1"), Some("xterm")) && !check(None, Some("dumb")));
    }
}
