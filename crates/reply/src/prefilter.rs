//! Finds in one pass over a text which of many patterns can match, and in which lines.

use std::collections::BTreeMap;

use aho_corasick::AhoCorasick;

use crate::required_literals::{AnyOf, BEYOND, RequiredLiterals};

/// Literal sets of a line that are checked; a line that has so many usually has the others too.
const NEEDS_MAX: usize = 32;

/// Literals of all patterns together. A list with more is not filtered: each of its patterns reads the text.
const LITERALS_MAX: usize = 4 << 10;

/// Lines in which a pattern can match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MatchScope {
    Nowhere,
    /// Only in the lines that begin at these offsets, in ascending order.
    Lines(Vec<usize>),
    Anywhere,
}

impl MatchScope {
    /// The last line in which the pattern can match, if that is known.
    pub(crate) fn last(&self) -> Option<usize> {
        match self {
            Self::Lines(lines) => lines.last().copied(),
            Self::Nowhere | Self::Anywhere => None,
        }
    }
}

/// Searches for the required literals of many patterns together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prefilter {
    /// `None` if no pattern can be filtered.
    words: Option<AhoCorasick>,
    /// For each literal the lines that require it, and the bit of its set there.
    meets: Vec<Vec<(usize, u32)>>,
    lines: Vec<Line>,
    /// Number of lines that each pattern requires, and whether the last of them contains all its words.
    patterns: Vec<(usize, bool)>,
}

/// Literal sets of a pattern that must be found within one line.
#[derive(Debug, Clone, Copy)]
struct Line {
    pattern: usize,
    /// One bit for each literal set.
    all: u32,
    /// Whether only this line has words of the pattern.
    only: bool,
}

/// Literal sets of a line that have been found.
#[derive(Clone, Copy, Default)]
struct LineProgress {
    line: usize,
    needs: u32,
    once: bool,
}

impl Prefilter {
    /// Builds the prefilter from the literals of each pattern, and whether its matches are within one line.
    pub(crate) fn of(patterns: Vec<(RequiredLiterals, bool)>) -> Self {
        let mut prefilter = Self::default();
        // The line break and the characters of `BEYOND` have the first indices.
        let ends = std::iter::once("\n".to_owned()).chain(BEYOND.iter().map(char::to_string));
        let mut words: Vec<Vec<u8>> = ends.map(String::into_bytes).collect();
        let mut known = BTreeMap::new();
        prefilter.meets.resize(words.len(), Vec::new());
        for (pattern, (needs, one_line)) in patterns.into_iter().enumerate() {
            let has_words = |line: &Vec<AnyOf>| one_line && line.iter().any(is_of_words);
            let (worded, mut lines): (Vec<_>, Vec<_>) = needs.lines().into_iter().partition(has_words);
            let only = !worded.is_empty();
            lines.extend(only.then(|| worded.concat()));
            prefilter.patterns.push((lines.len(), only));
            let count = lines.len();
            for (nth, line) in lines.into_iter().enumerate() {
                let mut all = 0;
                for (any, need) in line.into_iter().take(NEEDS_MAX).zip(0_u32..) {
                    all |= 1 << need;
                    for word in any {
                        let at = *known.entry(word).or_insert_with_key(|word: &Vec<u8>| {
                            words.push(word.clone());
                            prefilter.meets.push(Vec::new());
                            words.len() - 1
                        });
                        prefilter.meets[at].push((prefilter.lines.len(), 1 << need));
                    }
                }
                prefilter.lines.push(Line { pattern, all, only: only && nth + 1 == count });
            }
        }
        if !prefilter.lines.is_empty() && prefilter.needs() <= LITERALS_MAX {
            prefilter.words = AhoCorasick::builder().ascii_case_insensitive(true).build(words).ok();
        }
        prefilter
    }

    /// Number of literals of all patterns.
    pub(crate) fn needs(&self) -> usize {
        self.meets.iter().map(Vec::len).sum()
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let meets = self.needs() * size_of::<(usize, u32)>() + self.meets.len() * size_of::<Vec<(usize, u32)>>();
        let lines = self.lines.len() * size_of::<Line>() + self.patterns.len() * size_of::<(usize, bool)>();
        meets + lines + self.words.as_ref().map_or(0, AhoCorasick::memory_usage)
    }

    /// Returns for each pattern where it can match the text.
    pub(crate) fn locate(&self, text: &str) -> Vec<MatchScope> {
        let Some(words) = &self.words else { return vec![MatchScope::Anywhere; self.patterns.len()] };
        let mut met = vec![LineProgress::default(); self.lines.len()];
        let mut missing: Vec<usize> = self.patterns.iter().map(|(lines, _)| *lines).collect();
        let mut found: Vec<Vec<usize>> = vec![Vec::new(); self.patterns.len()];
        let mut line = 0;
        for hit in words.find_overlapping_iter(text) {
            match hit.pattern().as_usize() {
                0 => line = hit.end(),
                word if word <= BEYOND.len() => return vec![MatchScope::Anywhere; self.patterns.len()],
                word => {
                    for (needs, need) in &self.meets[word] {
                        let Line { pattern, all, only } = self.lines[*needs];
                        let met = &mut met[*needs];
                        if met.line != line {
                            (met.line, met.needs) = (line, 0);
                        }
                        if met.needs != all && met.needs | need == all {
                            missing[pattern] -= usize::from(!met.once);
                            met.once = true;
                            if only {
                                found[pattern].push(line);
                            }
                        }
                        met.needs |= need;
                    }
                }
            }
        }
        let each = self.patterns.iter().zip(missing).zip(found);
        let place = |(((_, only), missing), lines): ((&(usize, bool), usize), Vec<usize>)| match (missing, only) {
            (1.., _) => MatchScope::Nowhere,
            (0, true) => MatchScope::Lines(lines),
            (0, false) => MatchScope::Anywhere,
        };
        each.map(place).collect()
    }
}

/// Whether each literal is a word, whose position is within one line.
fn is_of_words(any: &AnyOf) -> bool {
    any.iter().all(|word| !word.contains(&b'\n') && word.iter().any(u8::is_ascii_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;

    #[test]
    fn prefilter_finds_the_lines_of_each_pattern() {
        for (pattern, text, place) in [
            ("all.*done", "Done is\nall is\nDONE, all", MatchScope::Lines(vec![15])),
            ("all.*done", "all\ndone", MatchScope::Nowhere),
            (r"all\s+done", "all\ndone", MatchScope::Anywhere),
            (r"[.!]\s+(?:my |the )?next(?: step)?", "So.\n\nNext", MatchScope::Lines(vec![5])),
            (r"(?:\.\.\.\s+|all )done", "...\ndone", MatchScope::Lines(vec![4])),
            ("(all|done|both){2}", "done", MatchScope::Lines(vec![0])),
            ("(all|do)", "nothing", MatchScope::Anywhere),
            ("[a-z]+", "nothing", MatchScope::Anywhere),
            ("task", "tas\u{212A}", MatchScope::Anywhere),
            ("task", "tas", MatchScope::Nowhere),
        ] {
            let (_, needs) = Pattern::compile(pattern).unwrap();
            assert_eq!(Prefilter::of(vec![needs]).locate(text), [place], "{pattern} in {text:?}");
        }
    }
}
