//! Patterns that speak for going on or for being done, compiled once and bounded in size.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use contract::settings::ContinuationSettings;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::pattern::Pattern;
use crate::pattern_error::PatternError;
use crate::prefilter::{MatchScope, Prefilter};
use crate::prose::Prose;

/// Patterns of one list.
pub const PATTERNS_MAX: usize = 32;
/// Bytes of the texts of both lists.
pub const PATTERN_TEXTS_BYTES_MAX: usize = 16 << 10;
/// Bytes that both lists may compile to.
pub const COMPILED_LISTS_BYTES_MAX: usize = 2 << 20;
/// Bytes of the compiled lists that a process keeps for the sessions to come.
pub const CACHE_BYTES_MAX: usize = 16 << 20;
/// Lists for which that cache makes room at first.
const LISTS_EXPECTED: usize = 16;

/// Both lists of texts.
type Lists = (Vec<String>, Vec<String>);

/// Agents are few and sessions many, so sessions share what their lists compile to. No session holds it: lists that are
/// used no more go first.
static SHARED: LazyLock<Cache<Lists, Arc<Patterns>, CompiledBytes>> =
    LazyLock::new(|| Cache::with_weighter(LISTS_EXPECTED, CACHE_BYTES_MAX as u64, CompiledBytes));

#[derive(Debug, Clone)]
struct CompiledBytes;

impl Weighter<Lists, Arc<Patterns>> for CompiledBytes {
    fn weight(&self, (continuation, termination): &Lists, patterns: &Arc<Patterns>) -> u64 {
        let texts = continuation.iter().chain(termination).map(|text| text.capacity() + size_of::<String>());
        (patterns.bytes() + texts.sum::<usize>()) as u64
    }
}

/// A pattern that matched, and what it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatternMatch<'a> {
    /// Whether the text announces a next step; otherwise it says that it is done.
    pub continues: bool,
    /// The pattern that matched, as it is configured.
    pub pattern: &'a str,
}

/// Both lists of patterns, compiled.
#[derive(Debug, Clone, Default)]
pub struct Patterns {
    /// Those that say that all is done, then those that announce a next step.
    pub(crate) all: Vec<Pattern>,
    /// Number of patterns that say that all is done.
    done: usize,
    pub(crate) prefilter: Prefilter,
}

impl Patterns {
    /// Compiles both lists, once for all sessions that use the same; the first one that cannot be used is the error.
    pub fn compile(settings: &ContinuationSettings) -> Result<Arc<Self>, PatternError> {
        // Checked before anything is copied.
        check_texts(&settings.continuation_patterns, &settings.termination_patterns)?;
        let lists = (settings.continuation_patterns.clone(), settings.termination_patterns.clone());
        if let Some(known) = SHARED.get(&lists) {
            return Ok(known);
        }
        let patterns = Arc::new(Self::of(&lists.0, &lists.1)?);
        SHARED.insert(lists, patterns.clone());
        Ok(patterns)
    }

    pub(crate) fn of(continuation: &[String], termination: &[String]) -> Result<Self, PatternError> {
        let (mut all, mut needs) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for (name, list) in [("termination_patterns", termination), ("continuation_patterns", continuation)] {
            for (index, pattern) in list.iter().enumerate() {
                let at = |error: PatternError| PatternError { place: format!("{name}[{index}]"), ..error };
                let (compiled, needed) = Pattern::compile(pattern).map_err(at)?;
                bytes += compiled.bytes();
                if bytes > COMPILED_LISTS_BYTES_MAX {
                    let why = format!(
                        "with it both lists compile to more than {COMPILED_LISTS_BYTES_MAX} bytes; give fewer or \
                         simpler ones: `[a-z]` for `\\w`, fewer repetitions"
                    );
                    return Err(at(PatternError::new(pattern, why)));
                }
                all.push(compiled);
                needs.push(needed);
            }
        }
        Ok(Self { all, done: termination.len(), prefilter: Prefilter::of(needs) })
    }

    /// Bytes of memory that both lists take, compiled.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.all.iter().map(Pattern::bytes).sum::<usize>() + self.prefilter.bytes()
    }

    /// Bytes of all compiled lists that this process keeps.
    pub fn cached_bytes() -> usize {
        usize::try_from(SHARED.weight()).unwrap_or(usize::MAX)
    }

    /// Whether one pattern can be used.
    pub fn check(pattern: &str) -> Result<(), PatternError> {
        Pattern::compile(pattern).map(drop)
    }

    /// Returns the match that decides about another step; none if no match counts. A text that says that it is done is
    /// believed, unless it announces a next step after that. So the match that ends last decides; of matches with the
    /// same end, the one whose pattern comes first.
    pub fn match_text(&self, text: &str) -> Option<PatternMatch<'_>> {
        self.match_prose(&Prose::of(text)).map(|(found, _)| found)
    }

    /// The same, and where the match ends.
    pub(crate) fn match_prose(&self, prose: &Prose) -> Option<(PatternMatch<'_>, usize)> {
        let places = self.prefilter.locate(&prose.text);
        let mut order: Vec<usize> = (0..self.all.len()).filter(|at| places[*at] != MatchScope::Nowhere).collect();
        // Those first that can match late: behind the best match there is little left to search for the others.
        order.sort_by_key(|at| Reverse(places[*at].last()));
        let mut best: Option<(usize, usize)> = None;
        for at in order {
            let least = best.map_or(0, |(end, by)| end + usize::from(at > by));
            let counts = |found: &Range<usize>| {
                !prose.is_quoted(found)
                    && !(if at < self.done { prose.is_negated(found) } else { prose.is_asked(found) })
            };
            let end = self.all[at].last(prose, &places[at], least, counts);
            best = end.map(|end| (end, at)).or(best);
        }
        best.map(|(end, at)| (PatternMatch { continues: at >= self.done, pattern: self.all[at].as_str() }, end))
    }
}

/// Checks the number of patterns and their bytes, without a look at any pattern.
fn check_texts(continuation: &[String], termination: &[String]) -> Result<(), PatternError> {
    for (name, list) in [("continuation_patterns", continuation), ("termination_patterns", termination)] {
        if list.len() > PATTERNS_MAX {
            let why = format!("{} patterns in one list, at most {PATTERNS_MAX} are taken", list.len());
            return Err(PatternError::list(name, why));
        }
    }
    let bytes: usize = continuation.iter().chain(termination).map(String::len).sum();
    if bytes > PATTERN_TEXTS_BYTES_MAX {
        let why = format!("both lists have {bytes} bytes, at most {PATTERN_TEXTS_BYTES_MAX} are taken");
        let place = if continuation.is_empty() { "termination_patterns" } else { "continuation_patterns" };
        return Err(PatternError::list(place, why));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prose::{STEPS_MAX, TEXT_BYTES_MAX};

    #[test]
    fn shipped_templates_stay_far_below_the_limits() {
        // Each line can be matched by some pattern, and few matches count.
        let line = "If all of the files were reviewed I'll be checking whether the task is complete, please? ";
        let text = line.repeat(TEXT_BYTES_MAX / line.len());
        for known in crate::TEMPLATES {
            let patterns = Patterns::compile(&crate::template(known.name).unwrap()).unwrap();
            let (bytes, prose) = (patterns.bytes(), Prose::of(&text));
            patterns.match_prose(&prose);
            assert!(bytes < COMPILED_LISTS_BYTES_MAX / 3 * 2, "{}: {bytes} bytes", known.name);
            assert!(prose.spent() < STEPS_MAX / 4, "{}: {} steps", known.name, prose.spent());
        }
    }

    fn patterns() -> Arc<Patterns> {
        let settings = ContinuationSettings {
            continuation_patterns: vec!["now I'll".into(), "not.*finished".into()],
            termination_patterns: vec!["all done".into(), "finished".into()],
            ..ContinuationSettings::default()
        };
        Patterns::compile(&settings).unwrap()
    }

    #[test]
    fn pattern_matches_expected_texts() {
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
            assert_eq!(patterns.match_text(text).map(|found| found.continues), expected, "{text}");
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
                r#"pattern "(\\w{1,1000}){1,1000}" cannot be used: it compiles to more than 262144 bytes; repeat less, or a smaller class"#,
            ),
        ] {
            assert_eq!(Patterns::check(pattern).err().map(|error| error.to_string()).unwrap_or_default(), expected);
        }
    }
}
