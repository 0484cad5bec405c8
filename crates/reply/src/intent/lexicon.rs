//! Words and phrases, and what they stand for: one lookup for each word of a sentence.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::LazyLock;

use super::sentence::SPAN;
use super::tags::{Tags, english, european};

#[derive(Debug, Default)]
struct Entry {
    /// Tags of the word by itself.
    alone: Tags,
    /// Further words of phrases that begin with it.
    phrases: Vec<(Vec<&'static str>, Tags)>,
}

static LEXICON: LazyLock<HashMap<&'static str, Entry>> = LazyLock::new(|| {
    let files = [
        (include_str!("words/en.txt"), english::SECTIONS, 0),
        (include_str!("words/de.txt"), european::SECTIONS, european::GERMAN),
        (include_str!("words/fr.txt"), european::SECTIONS, european::FRENCH),
        (include_str!("words/es.txt"), european::SECTIONS, european::SPANISH),
    ];
    let mut lexicon = HashMap::new();
    for (text, sections, shift) in files {
        for (name, tags) in sections {
            for phrase in section(text, name) {
                add(&mut lexicon, phrase, tags << shift);
            }
        }
    }
    lexicon
});

fn add(lexicon: &mut HashMap<&'static str, Entry>, phrase: &'static str, tags: Tags) {
    let mut words = phrase.split(' ');
    let Some(first) = words.next() else { return };
    let entry = lexicon.entry(first).or_default();
    let rest: Vec<&str> = words.collect();
    if rest.is_empty() {
        entry.alone |= tags;
    } else if let Some((_, known)) = entry.phrases.iter_mut().find(|(known, _)| *known == rest) {
        *known |= tags;
    } else {
        entry.phrases.push((rest, tags));
    }
}

/// The phrases of a section: those between its name and the next name, separated by commas.
pub(super) fn section(text: &'static str, name: &str) -> Vec<&'static str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut within = false;
    let mut phrases = Vec::new();
    for line in lines {
        if let Some(named) = line.strip_suffix(':').filter(|named| !named.starts_with(' ')) {
            within = named == name;
        } else if within {
            phrases.extend(line.split(',').map(str::trim).filter(|phrase| !phrase.is_empty()));
        }
    }
    phrases
}

/// A phrase that was found.
#[derive(Debug, Clone, Copy)]
struct Found {
    at: usize,
    length: usize,
    tags: Tags,
}

/// The words of a sentence, and what they stand for.
#[derive(Debug, Default)]
pub(super) struct Words<'a> {
    pub(super) all: Vec<&'a str>,
    /// Tags of each word by itself.
    alone: Vec<Tags>,
    found: Vec<Found>,
    tags: Tags,
}

impl<'a> Words<'a> {
    /// Reads another sentence. An apostrophe and a hyphen within a word belong to it.
    pub(super) fn read(&mut self, text: &'a str) {
        let is_between = |c: char| !(c.is_alphanumeric() || matches!(c, '\'' | '-' | SPAN));
        self.all.clear();
        self.all
            .extend(text.split(is_between).map(|word| word.trim_matches(['\'', '-'])).filter(|word| !word.is_empty()));
        self.alone.clear();
        self.found.clear();
        self.tags = 0;
        for (at, word) in self.all.iter().enumerate() {
            let entry = LEXICON.get(word);
            let alone = entry.map_or(0, |entry| entry.alone);
            self.alone.push(alone);
            self.tags |= alone;
            if alone != 0 {
                self.found.push(Found { at, length: 1, tags: alone });
            }
            for (rest, tags) in entry.into_iter().flat_map(|entry| &entry.phrases) {
                if self.all[at + 1..].starts_with(rest) {
                    self.found.push(Found { at, length: rest.len() + 1, tags: *tags });
                    self.tags |= tags;
                }
            }
        }
    }

    /// Whether a phrase that stands for any of these is among them.
    pub(super) fn has(&self, tags: Tags) -> bool {
        self.tags & tags != 0
    }

    /// Returns the index and length, in words, of the first phrase with one of the tags; at one index, of the longest.
    pub(super) fn first(&self, tags: Tags) -> Option<(usize, usize)> {
        let all = self.found.iter().filter(|found| found.tags & tags != 0);
        all.min_by_key(|found| (found.at, std::cmp::Reverse(found.length))).map(|found| (found.at, found.length))
    }

    /// Whether such a phrase begins at this word.
    pub(super) fn has_at(&self, at: usize, tags: Tags) -> bool {
        self.found.iter().any(|found| found.at == at && found.tags & tags != 0)
    }

    /// Returns the number of words of the longest phrase with one of the tags that begins at this word.
    pub(super) fn longest_at(&self, at: usize, tags: Tags) -> Option<usize> {
        let all = self.found.iter().filter(|found| found.at == at && found.tags & tags != 0);
        all.map(|found| found.length).max()
    }

    /// Returns the word indices at which phrases with one of the tags begin.
    pub(super) fn places(&self, tags: Tags) -> impl Iterator<Item = usize> {
        self.found.iter().filter(move |found| found.tags & tags != 0).map(|found| found.at)
    }

    /// Whether one of the words from here to there stands for it by itself.
    pub(super) fn has_word(&self, range: Range<usize>, tags: Tags) -> bool {
        self.alone[range].iter().any(|word| word & tags != 0)
    }

    /// Whether a word has one of the tags by itself.
    pub(super) fn alone(&self, at: usize, tags: Tags) -> bool {
        self.alone.get(at).is_some_and(|word| word & tags != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_of_a_file_is_used_and_has_phrases() {
        let european = ["de", "fr", "es"].map(|name| (name, european::SECTIONS));
        let files = [include_str!("words/de.txt"), include_str!("words/fr.txt"), include_str!("words/es.txt")];
        let all = files.into_iter().zip(european).chain([(include_str!("words/en.txt"), ("en", english::SECTIONS))]);
        for (text, (file, sections)) in all {
            let named: Vec<&str> = text.lines().filter_map(|line| line.strip_suffix(':')).collect();
            let known: Vec<&str> = sections.iter().map(|(name, _)| *name).collect();
            assert_eq!(named, known, "{file}");
            assert!(known.iter().all(|name| !section(text, name).is_empty()), "{file}");
        }
    }
}
