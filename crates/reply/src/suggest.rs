//! Patterns that would have matched replies after which users had to write "go on".
//!
//! Only the last sentence of each reply counts. A sequence of words is proposed if it is in the last sentence of a
//! reply after which the user had to nudge, and in no last sentence of a reply after which nobody had to.

use std::collections::{BTreeMap, BTreeSet};

use crate::patterns::{PatternMatch, Patterns};
use crate::prose::last_sentence;

/// Words of a proposed pattern.
const WORDS: std::ops::RangeInclusive<usize> = 2..=4;
/// Patterns that are proposed.
const SUGGESTIONS_MAX: usize = 8;
/// Words that say nothing by themselves.
const SMALL: &[&str] = &[
    "a", "an", "the", "of", "to", "in", "on", "at", "for", "and", "or", "is", "are", "was", "be", "it", "this", "that",
    "these", "with", "as", "by", "from", "i", "you", "we", "my", "your", "our", "will", "has", "have", "had",
];

/// A pattern that nobody has yet, and what speaks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// The suggested pattern, for the list of the agent.
    pub pattern: String,
    /// Number of replies that it would have matched, without those of an earlier suggestion.
    pub replies: usize,
    /// The last sentence of one of them.
    pub example: String,
}

/// Proposes continuation patterns. `nudged`: replies after which the user had to ask to go on; `ended`: replies that
/// were an end; `known`: the patterns that match already.
pub fn suggest(nudged: &[String], ended: &[String], known: &Patterns) -> Vec<Suggestion> {
    let goes_on = |text: &&String| matches!(known.match_text(text), Some(PatternMatch { continues: true, .. }));
    let mut open: Vec<Sentence> = nudged.iter().filter(|text| !goes_on(text)).map(|text| Sentence::of(text)).collect();
    let ends: BTreeSet<String> = ended.iter().flat_map(|text| Sentence::of(text).phrases()).collect();
    let mut found = Vec::new();
    while found.len() < SUGGESTIONS_MAX {
        let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for sentence in &open {
            for (place, phrase) in sentence.phrases().into_iter().enumerate().filter(|(_, p)| !ends.contains(p)) {
                let entry = counts.entry(phrase).or_insert((0, place));
                entry.0 += 1;
            }
        }
        // The most frequent phrase; then the earliest one, where announcements are made; then the longest one.
        let best = counts
            .into_iter()
            .max_by_key(|(phrase, (replies, place))| (*replies, std::cmp::Reverse(*place), phrase.split(' ').count()));
        let Some((phrase, (replies, _))) = best else { break };
        let (matching, rest): (Vec<Sentence>, Vec<Sentence>) =
            open.into_iter().partition(|sentence| sentence.phrases().contains(&phrase));
        open = rest;
        let words: Vec<String> = phrase.split(' ').map(regex::escape).collect();
        let pattern = format!(r"\b{}\b", words.join(r"\W+"));
        found.push(Suggestion {
            pattern,
            replies,
            example: matching.first().map(|s| s.text.clone()).unwrap_or_default(),
        });
    }
    found
}

/// The sentence that a reply ends with.
struct Sentence {
    text: String,
    words: Vec<String>,
}

impl Sentence {
    fn of(reply: &str) -> Self {
        let text = last_sentence(reply);
        let lower = text.to_lowercase();
        let words = lower.split(|c: char| !c.is_alphanumeric() && c != '\'').filter(|word| !word.is_empty());
        Self { words: words.map(str::to_owned).collect(), text }
    }

    /// Its sequences of words that say something, those that begin first coming first.
    fn phrases(&self) -> Vec<String> {
        let mut phrases = Vec::new();
        for begin in 0..self.words.len() {
            for count in WORDS.rev() {
                let Some(words) = self.words.get(begin..begin + count) else { continue };
                let states = words.iter().any(|word| !SMALL.contains(&word.as_str()) && word.parse::<f64>().is_err());
                let phrase = words.join(" ");
                if states && !phrases.contains(&phrase) {
                    phrases.push(phrase);
                }
            }
        }
        phrases
    }
}

#[cfg(test)]
mod tests {
    use contract::settings::ContinuationSettings;

    use super::*;

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn none() -> Patterns {
        Patterns::default()
    }

    #[test]
    fn phrase_that_repeats_is_suggested_once() {
        let nudged = owned(&[
            "The files are listed. On to the tests with fresh eyes.",
            "Done with one. On to the tests of the parser.",
            "Shall see. My plan of attack: look at the lexer.",
        ]);
        let ended = owned(&["The tests of the parser are all green.", "That was the plan of attack."]);
        let found = suggest(&nudged, &ended, &none());
        let reported: Vec<(&str, usize)> = found.iter().map(|s| (s.pattern.as_str(), s.replies)).collect();
        assert_eq!(reported, [(r"\bon\W+to\W+the\W+tests\b", 2), (r"\bmy\W+plan\W+of\W+attack\b", 1)]);
        assert!(found[0].example.starts_with("On to the tests"));
        // A suggestion matches, and in no reply that ended its turn.
        let settings = ContinuationSettings {
            continuation_patterns: found.iter().map(|s| s.pattern.clone()).collect(),
            termination_patterns: Vec::new(),
            ..ContinuationSettings::default()
        };
        let patterns = Patterns::compile(&settings).unwrap();
        assert!(nudged.iter().all(|text| patterns.match_text(text).is_some()));
        assert!(ended.iter().all(|text| patterns.match_text(text).is_none()));
    }

    #[test]
    fn phrase_that_matches_already_or_ends_turns_is_not_suggested() {
        let settings = ContinuationSettings {
            continuation_patterns: vec!["now I'll".to_owned()],
            ..ContinuationSettings::default()
        };
        let known = Patterns::compile(&settings).unwrap();
        assert_eq!(suggest(&owned(&["Now I'll look."]), &[], &known), []);
        let same = owned(&["Here is the report."]);
        assert_eq!(suggest(&same, &same, &none()), []);
        assert_eq!(suggest(&owned(&["", "   ", "..."]), &[], &none()), []);
    }
}
