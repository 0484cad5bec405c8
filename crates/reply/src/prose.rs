//! A reply's prose: what of it the model says itself, and in which sentence.

use std::cell::Cell;
use std::ops::Range;

/// Bytes of a reply that are read, from its end: what a model says about going on stands there.
pub(crate) const TEXT_BYTES_MAX: usize = 8 << 10;
/// Steps that all patterns of both lists together may take over one reply; each is a transition of an automaton at one
/// byte. It is some tenths of a second at the very worst, and a hundred times what the templates need.
pub(crate) const STEPS_MAX: usize = 16 << 20;
/// Words after which nothing in the same sentence says that all is done.
pub(crate) const NEGATIONS: &[&str] =
    &["not", "never", "almost", "nearly", "once", "until", "before", "when", "if", "unless", "cannot"];
/// The same, of several words.
pub(crate) const NEGATING_PHRASES: &[&str] = &["yet to", "as soon as", "far from", "how ", "whether "];
/// Words before an announcement that make it an offer, or depend on the user.
pub(crate) const CONDITIONS: &[&str] = &[
    "if you",
    "once you",
    "when you",
    "as soon as you",
    "after you",
    "until you",
    "unless you",
    "let me know",
    "tell me",
    "would you",
    "do you want",
    "want me to",
    "like me to",
    "shall i",
    "should i",
    "could i",
    "may i",
    "can i",
    "whether i",
    "say the word",
    "as soon as i know",
    "once i know",
    "when i know",
    "send me",
    "please",
];
/// Words that announce no work: waiting, asking, explaining.
pub(crate) const IDLE: &[&str] = &[
    "i'll need",
    "i will need",
    "i'll wait",
    "i will wait",
    "i'll stop",
    "i will stop",
    "i'll leave",
    "i'll be happy",
    "i'll be glad",
    "i'll be here",
    "i'll be able",
    "i'll let you",
    "i'll assume",
    "i'll never",
    "i'll not",
    "i will not",
    "we will not",
    "we'll need",
    "i'm waiting",
    "i am waiting",
    "i'm assuming",
    "i'm hoping",
    "i'm wondering",
    "i'm looking forward",
    "i'm having",
    "i'm missing",
    "i'm seeing",
    "i'm getting",
    "i'm happy",
    "let me explain",
    "let me clarify",
    "let me be",
    "let me put",
    "let me give you",
    "let me walk you",
    "let me break",
    "let me summari",
    "let me illustrate",
    "let me show you",
    "let's say",
    "let's assume",
    "let's suppose",
    "let's be",
];

/// The end of a text, with plain apostrophes and quotes, and where it quotes.
#[derive(Default)]
pub(crate) struct Prose {
    pub(crate) text: String,
    /// In order.
    quoted: Vec<Range<usize>>,
    /// Ends of matches that are known to be negated. Without it a long sentence is read for each of its matches.
    negated: Cell<Range<usize>>,
    /// The same for what asks or waits: the ends for which it is known, and what.
    asked: Cell<(Range<usize>, bool)>,
    /// Steps that are left.
    steps: Cell<usize>,
}

impl Prose {
    pub(crate) fn of(text: &str) -> Self {
        let from = text.ceil_char_boundary(text.len().saturating_sub(TEXT_BYTES_MAX));
        let begin = text[..from].rfind('\n').map_or(0, |end| end + 1);
        let is_fence = |line: &str| line.trim_start().starts_with("```");
        // A block of code may begin before the part that is read.
        let mut fenced = text[..begin].lines().filter(|line| is_fence(line)).count() % 2 == 1;
        let (text_left, steps) = (String::with_capacity(text.len() - from), Cell::new(STEPS_MAX));
        let mut prose = Self { text: text_left, steps, ..Self::default() };
        let mut skipped = from - begin;
        for whole in text[begin..].split_inclusive('\n') {
            let line = &whole[std::mem::take(&mut skipped)..];
            let fence = is_fence(whole);
            if fenced || fence || whole.trim_start().starts_with('>') {
                let begin = prose.text.len();
                prose.text.push_str(line);
                prose.quoted.push(begin..prose.text.len());
            } else {
                prose.line(line);
            }
            fenced ^= fence;
        }
        prose
    }

    /// A line of prose. A quotation does not go beyond it.
    fn line(&mut self, line: &str) {
        let mut quote: Option<(usize, usize)> = None;
        // Characters that would begin a quotation, had it an end in this line.
        let mut endless = String::new();
        let mut at = 0;
        while let Some(run) = line[at..].bytes().position(|byte| matches!(byte, b'"' | b'`' | 0x80..)) {
            self.text.push_str(&line[at..at + run]);
            at += run;
            let Some(c) = line[at..].chars().next() else { break };
            if let Some((begin, end)) = quote {
                if end == at {
                    self.quoted.push(begin..self.text.len());
                    quote = None;
                }
            } else if let Some(ends) = closing(c).filter(|_| !endless.contains(c)) {
                match end_of(line, at, c, ends) {
                    Some(end) => quote = Some((self.text.len() + 1, end)),
                    None => endless.push(c),
                }
            }
            at += c.len_utf8();
            self.text.push(plain(c));
        }
        self.text.push_str(&line[at..]);
    }

    /// Searches with the steps that are left. When they do not suffice, nothing more is searched: what was heard by then
    /// counts.
    pub(crate) fn spend<T>(&self, search: impl FnOnce(&mut usize) -> Option<T>) -> Option<T> {
        let mut left = self.steps.take();
        let found = search(&mut left);
        self.steps.set(if found.is_some() { left } else { 0 });
        found
    }

    /// Steps that were taken.
    #[cfg(test)]
    pub(crate) fn spent(&self) -> usize {
        STEPS_MAX - self.steps.get()
    }

    /// Whether somebody else says it.
    pub(crate) fn is_quoted(&self, found: &Range<usize>) -> bool {
        // A pattern may begin at the end of the sentence before, or be about quotes itself.
        let lead = self.text[found.clone()].find(|c: char| c.is_alphanumeric() || c == '"').unwrap_or(0);
        let at = found.start + lead;
        let next = self.quoted.partition_point(|range| range.end <= at);
        self.quoted.get(next).is_some_and(|range| range.contains(&at))
    }

    /// Whether a negation stands in the sentence, before the end of what was found.
    pub(crate) fn is_negated(&self, found: &Range<usize>) -> bool {
        let known = self.negated.take();
        let is_known = known.contains(&found.end);
        self.negated.set(known);
        if is_known {
            return true;
        }
        let begin = self.sentence_of(found.end);
        let from = negated_from(&self.text[begin..found.end]);
        // The same negation stands before whatever else was found behind it.
        self.negated.set(from.map_or(0..0, |from| begin + from..found.end + 1));
        from.is_some()
    }

    /// The sentence in which a match ends.
    pub(crate) fn sentence_around(&self, end: usize) -> Range<usize> {
        let begin = self.sentence_of(end);
        // A match may end with the sign that ends its sentence.
        let is_over =
            self.text[..end].chars().next_back().is_some_and(|c| ends_sentence(c, self.text[end..].chars().next()));
        begin..if is_over { end } else { self.sentence_end(end).map_or(self.text.len(), |(end, _)| end) }
    }

    /// Where the sentence ends that goes on at a place, and with which character; none where the text ends before.
    fn sentence_end(&self, place: usize) -> Option<(usize, char)> {
        let rest = &self.text[place..];
        let ends = |(at, c): &(usize, char)| ends_sentence(*c, rest[at + c.len_utf8()..].chars().next());
        rest.char_indices().find(ends).map(|(at, c)| (place + at + c.len_utf8(), c))
    }

    /// Whether it is a question, an offer, or waits for the user.
    pub(crate) fn is_asked(&self, found: &Range<usize>) -> bool {
        let (known, asked) = self.asked.take();
        let (known, asked) = if known.contains(&found.end) { (known, asked) } else { self.asked(found.end) };
        self.asked.set((known, asked));
        asked || {
            let said = self.text[found.clone()].to_lowercase();
            IDLE.iter().any(|idle| said.contains(idle))
        }
    }

    /// Whether the sentence that goes on at a place, or ends there, asks or waits; and which places that holds for.
    fn asked(&self, place: usize) -> (Range<usize>, bool) {
        let begin = self.sentence_of(place);
        let rest = &self.text[place..];
        let end = self.sentence_end(place);
        let after = end.map_or(self.text.len(), |(end, _)| end);
        let asked = end.is_some_and(|(_, c)| c == '?') || {
            let lower = self.text[begin..after].to_lowercase();
            CONDITIONS.iter().any(|condition| lower.contains(condition))
        };
        // Where a sentence ends just here, another one goes on.
        let ends = self.text[..place].chars().next_back().is_none_or(|c| ends_sentence(c, rest.chars().next()));
        (if ends { place } else { begin + 1 }..place + 1, asked)
    }

    /// Where the sentence begins that goes on at a place, or ends there.
    fn sentence_of(&self, place: usize) -> usize {
        let mut next = None;
        for (at, c) in self.text[..place].char_indices().rev() {
            if next.is_some() && ends_sentence(c, next) {
                return at + c.len_utf8();
            }
            next = Some(c);
        }
        0
    }
}

/// The sentence that a text ends with; empty where it holds no word.
pub(crate) fn last_sentence(text: &str) -> String {
    let prose = Prose::of(text.trim_end());
    let whole = prose.text.trim_end();
    whole[prose.sentence_of(whole.len())..].trim().to_owned()
}

/// Whether a sentence ends with a character, by what follows it.
fn ends_sentence(c: char, next: Option<char>) -> bool {
    c == '\n' || (matches!(c, '.' | '!' | '?' | ';' | '\u{2026}') && next.is_none_or(char::is_whitespace))
}

/// From where on a sentence is negated: behind the first word or phrase that does it.
fn negated_from(sentence: &str) -> Option<usize> {
    let lower = sentence.to_lowercase();
    let phrase = NEGATING_PHRASES.iter().filter_map(|phrase| Some(lower.find(phrase)? + phrase.len())).min();
    let is_between = |c: char| !c.is_alphanumeric() && c != '\'';
    let mut end = 0;
    let word = lower.split_inclusive(is_between).find_map(|word| {
        end += word.len();
        let alone = word.strip_suffix(is_between).unwrap_or(word);
        let negates = NEGATIONS.contains(&alone) || alone.ends_with("n't");
        negates.then_some(end - word.len() + alone.len())
    });
    let from = phrase.into_iter().chain(word).min()?;
    // Another case may take more or fewer bytes.
    let mut lower = 0;
    sentence.char_indices().find_map(|(at, c)| {
        lower += c.to_lowercase().map(char::len_utf8).sum::<usize>();
        (lower >= from).then_some(at + c.len_utf8())
    })
}

/// What ends a quotation that a character begins; none when it begins none.
fn closing(c: char) -> Option<&'static [char]> {
    match c {
        '"' => Some(&['"']),
        '`' => Some(&['`']),
        '\u{201C}' => Some(&['\u{201D}']),
        '\u{201E}' => Some(&['\u{201C}', '\u{201D}']),
        '\u{AB}' => Some(&['\u{BB}']),
        '\u{2018}' => Some(&['\u{2019}']),
        _ => None,
    }
}

/// Where a quotation ends that begins with a character of a line.
fn end_of(line: &str, at: usize, c: char, ends: &[char]) -> Option<usize> {
    let rest = &line[at + c.len_utf8()..];
    let is_end = |(at, found): (usize, char)| {
        // A closing single quote is an apostrophe where a letter follows.
        let follows = rest[at + found.len_utf8()..].chars().next();
        ends.contains(&found) && (c != '\u{2018}' || !follows.is_some_and(char::is_alphanumeric))
    };
    let found = rest.char_indices().find(|place| is_end(*place))?;
    Some(at + c.len_utf8() + found.0)
}

pub(crate) fn plain(c: char) -> char {
    match c {
        '\u{2018}' | '\u{2019}' | '\u{02BC}' => '\'',
        '\u{201C}' | '\u{201D}' | '\u{201E}' => '"',
        other => other,
    }
}
