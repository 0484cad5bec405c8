//! Tells in one pass over a text which of many patterns can match it at all, and in which lines.

use std::collections::BTreeMap;

use aho_corasick::AhoCorasick;

use crate::needs::{AnyOf, BEYOND, Needs};

/// Needs of a line that are looked at; a line that meets so many meets the others too.
const NEEDS_MAX: usize = 32;

/// Needs of all patterns together, each counted once for each of its words. A list with more is not sifted: the text is
/// read by each of its patterns.
const MEETS_MAX: usize = 4 << 10;

/// Where a pattern can match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Where {
    Nowhere,
    /// With its words in the lines that begin there, in order.
    Lines(Vec<usize>),
    Anywhere,
}

impl Where {
    /// The last line in which it can match, where that is known.
    pub(crate) fn last(&self) -> Option<usize> {
        match self {
            Self::Lines(lines) => lines.last().copied(),
            Self::Nowhere | Self::Anywhere => None,
        }
    }
}

/// The needs of many patterns, to be looked for together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sieve {
    /// None where nothing can be told of any pattern.
    words: Option<AhoCorasick>,
    /// For each word the lines of needs that it is part of, and which need it meets there.
    meets: Vec<Vec<(usize, u32)>>,
    lines: Vec<Line>,
    /// How many lines each pattern needs, and whether the last of them is the one with its words.
    patterns: Vec<(usize, bool)>,
}

/// Needs of a pattern that are met within one line.
#[derive(Debug, Clone, Copy)]
struct Line {
    pattern: usize,
    /// A bit for each need.
    all: u32,
    /// Whether the pattern has words in this line only.
    only: bool,
}

/// How far the needs of a line are met.
#[derive(Clone, Copy, Default)]
struct Met {
    line: usize,
    needs: u32,
    once: bool,
}

impl Sieve {
    /// Takes what each pattern needs, and whether its matches hold words of one line only.
    pub(crate) fn of(patterns: Vec<(Needs, bool)>) -> Self {
        let mut sieve = Self::default();
        // Ends of lines and what makes everything possible come before the words.
        let ends = std::iter::once("\n".to_owned()).chain(BEYOND.iter().map(char::to_string));
        let mut words: Vec<Vec<u8>> = ends.map(String::into_bytes).collect();
        let mut known = BTreeMap::new();
        sieve.meets.resize(words.len(), Vec::new());
        for (pattern, (needs, one_line)) in patterns.into_iter().enumerate() {
            let has_words = |line: &Vec<AnyOf>| one_line && line.iter().any(is_of_words);
            let (worded, mut lines): (Vec<_>, Vec<_>) = needs.lines().into_iter().partition(has_words);
            let only = !worded.is_empty();
            lines.extend(only.then(|| worded.concat()));
            sieve.patterns.push((lines.len(), only));
            let count = lines.len();
            for (nth, line) in lines.into_iter().enumerate() {
                let mut all = 0;
                for (any, need) in line.into_iter().take(NEEDS_MAX).zip(0_u32..) {
                    all |= 1 << need;
                    for word in any {
                        let at = *known.entry(word).or_insert_with_key(|word: &Vec<u8>| {
                            words.push(word.clone());
                            sieve.meets.push(Vec::new());
                            words.len() - 1
                        });
                        sieve.meets[at].push((sieve.lines.len(), 1 << need));
                    }
                }
                sieve.lines.push(Line { pattern, all, only: only && nth + 1 == count });
            }
        }
        if !sieve.lines.is_empty() && sieve.needs() <= MEETS_MAX {
            sieve.words = AhoCorasick::builder().ascii_case_insensitive(true).build(words).ok();
        }
        sieve
    }

    /// Needs of all patterns, each counted once for each of its words.
    pub(crate) fn needs(&self) -> usize {
        self.meets.iter().map(Vec::len).sum()
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let meets = self.needs() * size_of::<(usize, u32)>() + self.meets.len() * size_of::<Vec<(usize, u32)>>();
        let lines = self.lines.len() * size_of::<Line>() + self.patterns.len() * size_of::<(usize, bool)>();
        meets + lines + self.words.as_ref().map_or(0, AhoCorasick::memory_usage)
    }

    /// Where each pattern can match a text.
    pub(crate) fn sift(&self, text: &str) -> Vec<Where> {
        let Some(words) = &self.words else { return vec![Where::Anywhere; self.patterns.len()] };
        let mut met = vec![Met::default(); self.lines.len()];
        let mut missing: Vec<usize> = self.patterns.iter().map(|(lines, _)| *lines).collect();
        let mut found: Vec<Vec<usize>> = vec![Vec::new(); self.patterns.len()];
        let mut line = 0;
        for hit in words.find_overlapping_iter(text) {
            match hit.pattern().as_usize() {
                0 => line = hit.end(),
                word if word <= BEYOND.len() => return vec![Where::Anywhere; self.patterns.len()],
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
            (1.., _) => Where::Nowhere,
            (0, true) => Where::Lines(lines),
            (0, false) => Where::Anywhere,
        };
        each.map(place).collect()
    }
}

/// Whether each of them tells in which line the words of a match are.
fn is_of_words(any: &AnyOf) -> bool {
    any.iter().all(|word| !word.contains(&b'\n') && word.iter().any(u8::is_ascii_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;

    #[test]
    fn a_pattern_is_where_what_it_needs_is() {
        for (pattern, text, place) in [
            ("all.*done", "Done is\nall is\nDONE, all", Where::Lines(vec![15])),
            ("all.*done", "all\ndone", Where::Nowhere),
            (r"all\s+done", "all\ndone", Where::Anywhere),
            (r"[.!]\s+(?:my |the )?next(?: step)?", "So.\n\nNext", Where::Lines(vec![5])),
            (r"(?:\.\.\.\s+|all )done", "...\ndone", Where::Lines(vec![4])),
            ("(all|done|both){2}", "done", Where::Lines(vec![0])),
            ("(all|do)", "nothing", Where::Anywhere),
            ("[a-z]+", "nothing", Where::Anywhere),
            ("task", "tas\u{212A}", Where::Anywhere),
            ("task", "tas", Where::Nowhere),
        ] {
            let (_, needs) = Pattern::compile(pattern).unwrap();
            assert_eq!(Sieve::of(vec![needs]).sift(text), [place], "{pattern} in {text:?}");
        }
    }
}
