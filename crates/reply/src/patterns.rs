//! Patterns that speak for going on or for being done, compiled once and bounded in size.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use contract::settings::ContinuationSettings;

use crate::pattern::Pattern;
use crate::prose::Prose;
use crate::sieve::{Sieve, Where};

/// Patterns of one list.
pub const PATTERNS_MAX: usize = 32;
/// Compiled lists that are kept for the sessions to come.
const SHARED_MAX: usize = 256;

/// Both lists of texts, and what they compile to.
type Shared = HashMap<(Vec<String>, Vec<String>), Arc<Patterns>>;

/// Agents are few and sessions many; compiling costs more time and memory than all else of a session.
static SHARED: LazyLock<Mutex<Shared>> = LazyLock::new(Mutex::default);

/// A pattern that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError {
    /// Which one.
    pub pattern: String,
    /// Why, with the position where there is one.
    pub why: String,
}

impl std::fmt::Display for PatternError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pattern {:?} cannot be used: {}", self.pattern, self.why)
    }
}

impl std::error::Error for PatternError {}

/// What was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard<'a> {
    /// Whether the text announces a next step; otherwise it says that it is done.
    pub continues: bool,
    /// The pattern that heard it.
    pub pattern: &'a str,
}

/// Both lists, compiled.
#[derive(Debug, Clone, Default)]
pub struct Patterns {
    /// Those that say that all is done, then those that announce a next step.
    pub(crate) all: Vec<Pattern>,
    /// How many say that all is done.
    done: usize,
    pub(crate) sieve: Sieve,
}

impl Patterns {
    /// Compiles both lists, once for all sessions that use the same; the first one that cannot be used is the error.
    pub fn compile(settings: &ContinuationSettings) -> Result<Arc<Self>, PatternError> {
        let lists = (settings.continuation_patterns.clone(), settings.termination_patterns.clone());
        let shared = || SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shared().get(&lists) {
            return Ok(known.clone());
        }
        let patterns = Arc::new(Self::of(&lists.0, &lists.1)?);
        let mut shared = shared();
        if shared.len() >= SHARED_MAX {
            shared.clear();
        }
        shared.insert(lists, patterns.clone());
        Ok(patterns)
    }

    pub(crate) fn of(continuation: &[String], termination: &[String]) -> Result<Self, PatternError> {
        for list in [continuation, termination] {
            if list.len() > PATTERNS_MAX {
                let why = format!("{} patterns in one list; at most {PATTERNS_MAX}", list.len());
                return Err(PatternError { pattern: String::new(), why });
            }
        }
        let compiled = termination.iter().chain(continuation).map(|pattern| Pattern::compile(pattern));
        let (all, needs) = compiled.collect::<Result<_, _>>()?;
        Ok(Self { all, done: termination.len(), sieve: Sieve::of(needs) })
    }

    /// Whether one pattern can be used.
    pub fn check(pattern: &str) -> Result<(), PatternError> {
        Pattern::compile(pattern).map(drop)
    }

    /// What a text says of going on; none when it says nothing. A text that says that it is done is believed, unless it
    /// announces a next step after that. So it is the match that ends last; of those that end at the same place it is the
    /// one whose pattern comes first.
    pub fn hear(&self, text: &str) -> Option<Heard<'_>> {
        let prose = Prose::of(text);
        let places = self.sieve.sift(&prose.text);
        let mut order: Vec<usize> = (0..self.all.len()).filter(|at| places[*at] != Where::Nowhere).collect();
        // Those first that can match late: behind the best match there is little left to search for the others.
        order.sort_by_key(|at| Reverse(places[*at].last()));
        let mut best: Option<(usize, usize)> = None;
        for at in order {
            let least = best.map_or(0, |(end, by)| end + usize::from(at > by));
            let counts = |found: &Range<usize>| {
                !prose.is_quoted(found)
                    && !(if at < self.done { prose.is_negated(found) } else { prose.is_asked(found) })
            };
            let end = self.all[at].last(&prose, &places[at], least, counts);
            best = end.map(|end| (end, at)).or(best);
        }
        best.map(|(_, at)| Heard { continues: at >= self.done, pattern: self.all[at].as_str() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns() -> Arc<Patterns> {
        let settings = ContinuationSettings {
            continuation_patterns: vec!["now I'll".into(), "not.*finished".into()],
            termination_patterns: vec!["all done".into(), "finished".into()],
            ..ContinuationSettings::default()
        };
        Patterns::compile(&settings).unwrap()
    }

    #[test]
    fn what_is_heard() {
        for (text, expected) in [
            ("I am finished.", Some(false)),
            ("I'm not finished yet.", Some(true)),
            ("It isn't all done.", None),
            ("Not so fast. All done.", Some(false)),
            ("We have yet to get it finished", None),
            ("Once it is finished I report", None),
            ("Nothing else. All done!", Some(false)),
            ("Step 1 is all done. Now I\u{2019}ll read it", Some(true)),
            ("Now I'll read it. All done.", Some(false)),
            ("It printed \"all done\".", None),
            ("It printed `all done`.", None),
            ("> all done\n\nThat is the quotation.", None),
            ("```\nall done\n```", None),
            ("If you like, now I'll read it.", None),
            ("Now I'll read it?", None),
        ] {
            let (patterns, text) = (patterns(), text);
            assert_eq!(patterns.hear(text).map(|heard| heard.continues), expected, "{text}");
        }
    }

    #[test]
    fn bad_patterns_are_refused_with_their_place() {
        for (pattern, expected) in [
            ("now I'll", ""),
            ("done (", "pattern \"done (\" cannot be used: unclosed group at its character 6"),
            (
                "a(?=b)",
                "pattern \"a(?=b)\" cannot be used: look-around, including look-ahead and look-behind, is not supported at its character 2",
            ),
            (
                "[z-a]",
                "pattern \"[z-a]\" cannot be used: invalid character class range, the start must be <= the end at its character 2",
            ),
            (
                r"(\w{1,1000}){1,1000}",
                r#"pattern "(\\w{1,1000}){1,1000}" cannot be used: Compiled regex exceeds size limit of 1048576 bytes."#,
            ),
        ] {
            assert_eq!(Patterns::check(pattern).err().map(|error| error.to_string()).unwrap_or_default(), expected);
        }
    }
}
