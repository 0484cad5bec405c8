//! One pattern, compiled.

use std::ops::Range;

use regex::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::ast::{self, Ast, ClassSetItem, Visitor};

use crate::matcher::Matcher;
use crate::pattern_error::PatternError;
use crate::prefilter::MatchScope;
use crate::prose::Prose;
use crate::required_literals::RequiredLiterals;
use crate::shape::Shape;
use crate::windows::windows;

/// Bytes of one compiled pattern's automaton.
const COMPILED_BYTES_MAX: usize = 256 << 10;
/// Bytes of a compiled pattern for one text, and of what it remembers while it searches.
const TEXT_PATTERN_BYTES_MAX: usize = 256 << 10;
/// Bytes of a pattern's text.
pub(crate) const PATTERN_BYTES_MAX: usize = 2 << 10;
/// Classes of characters in one pattern, such as `\w` or `[a-z]`; each costs a look at all of Unicode's letters and
/// their cases.
const CLASSES_MAX: usize = 64;
/// Parentheses within each other; the parser goes through them one by one.
const NESTING_MAX: u32 = 64;

/// A pattern that can be used.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    text: String,
    matcher: Matcher,
}

/// A pattern for one text, as it is written: neither case nor lines are treated in any special way.
#[derive(Debug, Clone)]
pub struct TextPattern(Regex);

impl TextPattern {
    /// Compiles a pattern; one that is too long or would be too large is refused.
    pub fn compile(pattern: &str) -> Result<Self, PatternError> {
        check(pattern)?;
        let mut builder = RegexBuilder::new(pattern);
        let limited = builder.nest_limit(NESTING_MAX).size_limit(TEXT_PATTERN_BYTES_MAX);
        let built = limited.dfa_size_limit(TEXT_PATTERN_BYTES_MAX).build();
        built.map(Self).map_err(|error| PatternError::new(pattern, in_a_line(&error.to_string())))
    }

    /// Whether it matches anywhere.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

impl Pattern {
    /// Compiles a pattern, and tells what it needs and whether its matches hold words of one line only.
    pub(crate) fn compile(pattern: &str) -> Result<(Self, (RequiredLiterals, bool)), PatternError> {
        check(pattern)?;
        let mut parser = ParserBuilder::new();
        let parsed = parser.case_insensitive(true).multi_line(true).nest_limit(NESTING_MAX).build().parse(pattern);
        let parsed = parsed.map_err(|error| PatternError::new(pattern, in_a_line(&error.to_string())))?;
        let matcher = Matcher::new(&parsed, COMPILED_BYTES_MAX).ok_or_else(|| {
            let why = format!("it compiles to more than {COMPILED_BYTES_MAX} bytes; repeat less, or a smaller class");
            PatternError::new(pattern, why)
        })?;
        let known = (RequiredLiterals::of(&parsed), Shape::of(&parsed).is_of_one_line());
        Ok((Self { text: pattern.to_owned(), matcher }, known))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.text.capacity() + self.matcher.bytes()
    }

    /// Finds the end of the last match that counts; none if it ends before `least`.
    pub(crate) fn last(
        &self,
        prose: &Prose,
        place: &MatchScope,
        least: usize,
        counts: impl Fn(&Range<usize>) -> bool,
    ) -> Option<usize> {
        // Matches are found from the front only, but whether one counts takes longer to tell than to find it.
        let latest = |part: Range<usize>| {
            let found = prose.spend(|steps| self.matcher.find_all(&prose.text, part, steps))?;
            let mut late = found.into_iter().rev().take_while(|found| found.end >= least);
            late.find(|found| counts(found)).map(|found| found.end)
        };
        match place {
            MatchScope::Nowhere => None,
            MatchScope::Anywhere => latest(0..prose.text.len()),
            MatchScope::Lines(lines) => {
                let mut windows = windows(&prose.text, lines).take_while(|window| window.end >= least);
                windows.find_map(latest)
            }
        }
    }
}

/// Refuses what would take long to compile.
fn check(pattern: &str) -> Result<(), PatternError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        let why = format!("it has {} bytes, at most {PATTERN_BYTES_MAX} are taken; split it", pattern.len());
        return Err(PatternError::new(pattern, why));
    }
    let mut parser = ast::parse::ParserBuilder::new();
    // What cannot be parsed is refused by the compiler, with the reason.
    let Ok(parsed) = parser.nest_limit(NESTING_MAX).build().parse(pattern) else { return Ok(()) };
    let Ok(classes) = ast::visit(&parsed, Classes(0));
    if classes > CLASSES_MAX {
        let why = format!("it has {classes} classes of characters, at most {CLASSES_MAX} are taken; split it");
        return Err(PatternError::new(pattern, why));
    }
    Ok(())
}

/// Counts classes of characters.
struct Classes(usize);

impl Visitor for Classes {
    type Output = usize;
    type Err = std::convert::Infallible;

    fn finish(self) -> Result<usize, Self::Err> {
        Ok(self.0)
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "the library's kinds are many and not ours to count")]
    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        match ast {
            Ast::ClassUnicode(_) | Ast::ClassPerl(_) | Ast::ClassBracketed(_) => self.0 += 1,
            _ => {}
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Self::Err> {
        match item {
            ClassSetItem::Unicode(_) | ClassSetItem::Perl(_) | ClassSetItem::Bracketed(_) => self.0 += 1,
            ClassSetItem::Empty(_)
            | ClassSetItem::Literal(_)
            | ClassSetItem::Range(_)
            | ClassSetItem::Ascii(_)
            | ClassSetItem::Union(_) => {}
        }
        Ok(())
    }
}

/// The parser's words without its drawing: what is wrong, and at which character.
fn in_a_line(error: &str) -> String {
    // It draws a caret below the pattern, both indented by four blanks.
    let caret = error.lines().find_map(|line| line.strip_prefix("    ").filter(|line| line.trim_end().ends_with('^')));
    let place = caret.and_then(|line| line.find('^')).map(|at| format!(" at its character {}", at + 1));
    let reason = error.lines().rev().find_map(|line| line.strip_prefix("error: ")).unwrap_or(error);
    format!("{reason}{}", place.unwrap_or_default())
}
