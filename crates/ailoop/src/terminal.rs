//! The only module that prints: data to stdout, chatter to stderr.

use std::io::{self, IsTerminal as _, Write as _};

use crate::failure::Failure;

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
    /// Finds out what the two streams are. `NO_COLOR` with any value switches colours off.
    pub fn new() -> Self {
        let screen = io::stderr().is_terminal();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { live: io::stdout().is_terminal(), screen, colour: screen && !plain }
    }

    /// Whether stdout is a screen, so that text is shown while it comes.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Prints data to stdout.
    pub fn data(&self, text: &str) -> Result<(), ReaderGone> {
        let mut out = io::stdout().lock();
        let printed = if self.live { out.write_all(harmless(text).as_bytes()) } else { out.write_all(text.as_bytes()) };
        printed.and_then(|()| out.flush()).map_err(|_| ReaderGone)
    }

    /// Prints a line to stderr; a stderr that nobody reads is no reason to stop.
    pub fn note(&self, style: Style, text: &str) {
        let mut out = io::stderr().lock();
        let text = if self.screen { harmless(text) } else { text.to_owned() };
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

/// Takes out what could move the cursor, write into the title, or show letters in another order than they stand in: models
/// and tools choose this text, not the user, and the user may be about to approve it.
fn harmless(text: &str) -> String {
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !(c.is_control() || is_of_direction(*c))).collect()
}

/// The format characters of Unicode that turn the direction of writing.
const fn is_of_direction(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_a_model_do_not_reach_the_screen() {
        assert_eq!(harmless("a\x1b]0;title\x07b\n\tc\u{9b}2J\r"), "a]0;titleb\n\tc2J");
        assert_eq!(harmless("rm \u{202e}fdp.exe\u{202c} שלום"), "rm fdp.exe שלום");
    }
}
