//! One pattern, compiled.

use std::ops::Range;

use regex::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;

use crate::needs::Needs;
use crate::patterns::PatternError;
use crate::prose::Prose;
use crate::shape::Shape;
use crate::sieve::Where;
use crate::windows::windows;

/// Bytes of a compiled pattern.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// Bytes of a pattern's text.
const PATTERN_BYTES_MAX: usize = 2 << 10;

/// A pattern that can be used.
#[derive(Debug, Clone)]
pub(crate) struct Pattern(Regex);

/// A pattern for one text, as it is written: neither case nor lines are treated in any special way.
#[derive(Debug, Clone)]
pub struct TextPattern(Regex);

impl TextPattern {
    /// Compiles a pattern; one that is too long or would be too large is refused.
    pub fn compile(pattern: &str) -> Result<Self, PatternError> {
        let refuse = |why| PatternError { pattern: pattern.chars().take(80).collect(), why };
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(refuse(format!("{} bytes; at most {PATTERN_BYTES_MAX}", pattern.len())));
        }
        let built = RegexBuilder::new(pattern).size_limit(COMPILED_BYTES_MAX).build();
        built.map(Self).map_err(|error| refuse(in_a_line(&error.to_string())))
    }

    /// Whether it matches anywhere.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

impl Pattern {
    /// Compiles a pattern, and tells what it needs and whether its matches hold words of one line only.
    pub(crate) fn compile(pattern: &str) -> Result<(Self, (Needs, bool)), PatternError> {
        let refuse = |why| PatternError { pattern: pattern.chars().take(80).collect(), why };
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(refuse(format!("{} bytes; at most {PATTERN_BYTES_MAX}", pattern.len())));
        }
        let mut builder = RegexBuilder::new(pattern);
        let built = builder.case_insensitive(true).multi_line(true).size_limit(COMPILED_BYTES_MAX).build();
        let regex = built.map_err(|error| refuse(in_a_line(&error.to_string())))?;
        // By the same rules; what it needs can only make it faster.
        let parsed = ParserBuilder::new().case_insensitive(true).multi_line(true).build().parse(pattern);
        let known = parsed.map_or_else(
            |_| (Needs::default(), false),
            |parsed| (Needs::of(&parsed), Shape::of(&parsed).is_of_one_line()),
        );
        Ok((Self(regex), known))
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Where the last of its matches ends that counts, if it is not before `least`.
    pub(crate) fn last(
        &self,
        prose: &Prose,
        place: &Where,
        least: usize,
        counts: impl Fn(&Range<usize>) -> bool,
    ) -> Option<usize> {
        // Matches are found from the front only, but whether one counts takes longer to tell than to find it.
        let latest = |found: Vec<Range<usize>>| {
            let mut late = found.into_iter().rev().take_while(|found| found.end >= least);
            late.find(|found| counts(found)).map(|found| found.end)
        };
        match place {
            Where::Nowhere => None,
            Where::Anywhere => latest(self.0.find_iter(&prose.text).map(|found| found.range()).collect()),
            Where::Lines(lines) => {
                let mut windows = windows(&prose.text, lines).take_while(|window| window.end >= least);
                windows.find_map(|window| latest(all_within(&self.0, &prose.text, window)))
            }
        }
    }
}

/// All matches within a part of a text. None of them is empty: it has words.
fn all_within(regex: &Regex, text: &str, window: Range<usize>) -> Vec<Range<usize>> {
    let mut from = window.start;
    let next = || {
        let found = regex.find_at(&text[..window.end], from)?.range();
        from = found.end;
        Some(found)
    };
    std::iter::from_fn(next).collect()
}

/// The parser's words without its drawing: what is wrong, and at which character.
fn in_a_line(error: &str) -> String {
    // It draws a caret below the pattern, both indented by four blanks.
    let caret = error.lines().find_map(|line| line.strip_prefix("    ").filter(|line| line.trim_end().ends_with('^')));
    let place = caret.and_then(|line| line.find('^')).map(|at| format!(" at its character {}", at + 1));
    let reason = error.lines().rev().find_map(|line| line.strip_prefix("error: ")).unwrap_or(error);
    format!("{reason}{}", place.unwrap_or_default())
}
