//! A reply's prose: what of it the model says itself, and in which sentence.

use std::cell::Cell;
use std::ops::Range;

/// Bytes of a reply that are read, from its end: what a model says about going on stands there.
pub(crate) const TEXT_BYTES_MAX: usize = 8 << 10;
/// Steps that all patterns of both lists together may take over one reply; each is a transition of an automaton at one
/// byte. It is some tenths of a second at the very worst, and a hundred times what the templates need.
pub(crate) const STEPS_MAX: usize = 16 << 20;
/// Words after which nothing in the same sentence says that all is done.
pub(crate) const NEGATIONS: &[&str] = &[
    "not", "never", "almost", "nearly", "once", "until", "before", "when", "if", "unless", "cannot", "how", "whether",
];
/// The same, of several words. As all phrases here they are bound to words: neither a letter, a digit nor an apostrophe
/// stands before or behind them. Behind a `*` the word may go on: `if you*` is also "if you'd".
pub(crate) const NEGATING_PHRASES: &[&str] = &["yet to", "as soon as", "far from"];
/// Words that announce work, unless they are [`IDLE`]. What stands behind them in the same sentence is not done yet.
pub(crate) const ANNOUNCING: &[&[&str]] = &[
    &["i'll", "i will", "i'm going to", "i am going to"],
    &["we'll", "we will", "we're going to", "we are going to", "let me", "let's"],
];
/// Words in the sentence of an announcement that make it an offer, or depend on the user.
pub(crate) const CONDITIONS: &[&[&str]] = &[
    &["if you*", "once you*", "when you*", "as soon as you*", "after you*", "until you*", "unless you*"],
    &["let me know", "tell me", "send me", "say the word", "please"],
    &["would you", "do you want", "want me to", "like me to"],
    &["shall i", "should i", "could i", "may i", "can i", "whether i"],
    &["as soon as i know", "once i know", "when i know"],
];
/// Conditions that may also tell when something else happens: "the bug that appears when you resize".
pub(crate) const CIRCUMSTANCES: &[&str] = &["once you*", "when you*", "after you*"];
/// Words at the beginning of a sentence whose work waits for what the sentence before it says.
pub(crate) const AFTERWARDS: &[&str] =
    &["after that", "after this", "afterwards", "once that", "once this", "when that", "as soon as that", "then"];
/// Bytes without a word that may stand between a match and a phrase that goes on from it.
pub(crate) const IDLE_GAP_BYTES_MAX: usize = 16;
/// Bytes behind a match within which such a phrase ends.
const IDLE_REACH_BYTES: usize = 48;
/// Phrases that announce no work: waiting, asking, explaining.
pub(crate) const IDLE: &[&[&str]] = &[
    &["i'll need", "i will need", "we'll need"],
    &["i'll wait", "i will wait", "i'm waiting", "i am waiting", "i'll stop", "i will stop", "i'll leave"],
    &["i'll be happy", "i'll be glad", "i'll be here", "i'll be able", "i'll let you", "i'm happy"],
    &["i'll assume", "i'm assuming", "i'm hoping", "i'm wondering", "i'm looking forward"],
    &["i'll never", "i'll not", "i will not", "we will not"],
    &["i'm having", "i'm missing", "i'm seeing", "i'm getting"],
    &["let me know", "let me explain", "let me clarify", "let me be", "let me put", "let me summari*"],
    &["let me give you", "let me walk you", "let me show you", "let me break", "let me illustrate"],
    &["let's say", "let's assume", "let's suppose", "let's be"],
];

/// The end of a text, with plain apostrophes and quotes, and where it quotes.
#[derive(Default)]
pub(crate) struct Prose {
    pub(crate) text: String,
    /// Quoted parts of the text, in order.
    quoted: Vec<Range<usize>>,
    /// Matches that are known to be negated: the earliest offset at which they begin, and the range of their ends.
    /// Without it a long sentence is read for each of its matches.
    negated: Cell<(usize, Range<usize>)>,
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

    /// Searches with the steps that are left. When they do not suffice, nothing more is searched: what matched by then
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

    /// Whether a negation stands in the sentence before the end of what was found, or an announcement before its
    /// beginning.
    pub(crate) fn is_negated(&self, found: &Range<usize>) -> bool {
        let known = self.negated.take();
        let is_known = known.0 <= found.start && known.1.contains(&found.end);
        self.negated.set(known);
        if is_known {
            return true;
        }
        let begin = self.sentence_of(found.end);
        let sentence = &self.text[begin..found.end];
        let lower = sentence.to_lowercase();
        let negated = negated_from(&lower).map(|from| (0, begin + in_text(sentence, from)));
        let from = negated.or_else(|| {
            let from = self.announced_from(begin, sentence, &lower)?;
            (from <= found.start).then_some((from, from))
        });
        // The same stands before whatever else was found behind it.
        self.negated.set(from.map_or((0, 0..0), |(least, from)| (least, from..found.end + 1)));
        from.is_some()
    }

    /// Behind which place the sentence that begins at a place announces work.
    fn announced_from(&self, begin: usize, sentence: &str, lower: &str) -> Option<usize> {
        let announces = |at: &Range<usize>| !self.begins_idle(begin + in_text(sentence, at.start));
        let phrases = ANNOUNCING.iter().copied().flatten();
        let firsts = phrases.filter_map(|phrase| occurrences(lower, phrase).find(&announces));
        firsts.map(|at| begin + in_text(sentence, at.end)).min()
    }

    /// Whether a phrase that announces no work begins at a place where a word begins.
    fn begins_idle(&self, place: usize) -> bool {
        let reach = self.text.ceil_char_boundary((place + IDLE_REACH_BYTES).min(self.text.len()));
        let lower = self.text[place..reach].to_lowercase();
        IDLE.iter().copied().flatten().any(|idle| occurrences(&lower, idle).next().is_some_and(|at| at.start == 0))
    }

    /// The sentence in which a match ends.
    pub(crate) fn sentence_around(&self, end: usize) -> Range<usize> {
        self.sentence_of(end)..self.end_around(end, self.text.len())
    }

    /// Returns the end of the sentence in which a match ends; `reach` if the sentence does not end before it.
    fn end_around(&self, end: usize, reach: usize) -> usize {
        // A match may end with the sign that ends its sentence.
        let next = self.text[end..].chars().next();
        let is_over = self.text[..end].chars().next_back().is_some_and(|c| ends_sentence(c, next));
        if is_over { end } else { self.sentence_end(end, reach).map_or(reach, |(end, _)| end) }
    }

    /// Finds the end of the sentence that continues at `place`, and the character that ends it; none if it does not end
    /// before `reach`.
    fn sentence_end(&self, place: usize, reach: usize) -> Option<(usize, char)> {
        let ends = |(at, c): &(usize, char)| ends_sentence(*c, self.text[place + at + c.len_utf8()..].chars().next());
        self.text[place..reach].char_indices().find(ends).map(|(at, c)| (place + at + c.len_utf8(), c))
    }

    /// Whether it is a question, an offer, waits for the user, or announces no work.
    pub(crate) fn is_asked(&self, found: &Range<usize>) -> bool {
        let (known, asked) = self.asked.take();
        let (known, asked) = if known.contains(&found.end) { (known, asked) } else { self.asked(found.end) };
        self.asked.set((known, asked));
        asked || self.is_idle(found)
    }

    /// Whether a phrase that announces no work begins in what was found, or goes on from it in the same sentence.
    fn is_idle(&self, found: &Range<usize>) -> bool {
        // The character before tells whether the match begins with a word.
        let from = self.text[..found.start].char_indices().next_back().map_or(0, |(at, _)| at);
        let reach = self.text.ceil_char_boundary((found.end + IDLE_REACH_BYTES).min(self.text.len()));
        let lower = self.text[from..self.end_around(found.end, reach)].to_lowercase();
        let begin = self.text[from..found.start].to_lowercase().len();
        let behind = self.text[from..found.end].to_lowercase().len();
        let word = lower[behind..].find(is_of_word).unwrap_or(IDLE_GAP_BYTES_MAX);
        let last = behind + word.min(IDLE_GAP_BYTES_MAX);
        let is_near = |idle: &&str| occurrences(&lower, idle).any(|at| (begin..=last).contains(&at.start));
        IDLE.iter().copied().flatten().any(is_near)
    }

    /// Whether the sentence that goes on at a place, or ends there, asks or waits; and which places that holds for.
    fn asked(&self, place: usize) -> (Range<usize>, bool) {
        let begin = self.sentence_of(place);
        let rest = &self.text[place..];
        let end = self.sentence_end(place, self.text.len());
        let after = end.map_or(self.text.len(), |(end, _)| end);
        let asked = end.is_some_and(|(_, c)| matches!(c, '?' | '\u{FF1F}')) || {
            let lower = self.text[begin..after].to_lowercase();
            is_conditional(&lower) || (is_afterwards(&lower) && self.asks_before(begin))
        };
        // Where a sentence ends just here, another one goes on.
        let ends = self.text[..place].chars().next_back().is_none_or(|c| ends_sentence(c, rest.chars().next()));
        (if ends { place } else { begin + 1 }..place + 1, asked)
    }

    /// Whether the sentence that ends before a place asks or waits.
    fn asks_before(&self, place: usize) -> bool {
        let before = self.text[..place].trim_end();
        let sentence = &before[self.sentence_of(before.len())..];
        sentence.ends_with(['?', '\u{FF1F}']) || is_conditional(&sentence.to_lowercase())
    }

    /// Returns the beginning of the sentence that continues at `place`, or ends there.
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
    match c {
        '\n' | '\u{3002}' | '\u{FF01}' | '\u{FF1F}' => true,
        '.' | '!' | '?' | ';' | '\u{2026}' => next.is_none_or(char::is_whitespace),
        _ => false,
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '\''
}

/// Finds the occurrences of a phrase in a lower-case text, at word boundaries.
fn occurrences<'a>(text: &'a str, phrase: &'a str) -> impl Iterator<Item = Range<usize>> {
    let (stem, is_stem) = phrase.strip_suffix('*').map_or((phrase, false), |stem| (stem, true));
    text.match_indices(stem).filter_map(move |(at, stem)| {
        let end = at + stem.len();
        let is_bound = !text[..at].ends_with(is_of_word) && (is_stem || !text[end..].starts_with(is_of_word));
        is_bound.then_some(at..end)
    })
}

/// Whether a sentence in lower case is an offer, or depends on the user.
fn is_conditional(sentence: &str) -> bool {
    CONDITIONS.iter().copied().flatten().any(|condition| {
        let may_describe = CIRCUMSTANCES.contains(condition);
        occurrences(sentence, condition).any(|at| !(may_describe && describes(&sentence[..at.start])))
    })
}

/// Whether what stands before a circumstance is a clause about a thing: "that appears", "which only crashes".
fn describes(before: &str) -> bool {
    let mut words = before.split_whitespace().rev();
    words.next().is_some_and(|verb| verb.ends_with('s'))
        && words.take(2).any(|word| matches!(word, "that" | "which" | "who"))
}

/// Whether a sentence in lower case begins with words for what comes after the sentence before it.
fn is_afterwards(sentence: &str) -> bool {
    let begin = sentence.find(is_of_word);
    AFTERWARDS.iter().any(|phrase| occurrences(sentence, phrase).next().map(|at| at.start) == begin && begin.is_some())
}

/// Converts an offset in the lower-case text to an offset in `text`: another case may take more or fewer bytes.
fn in_text(text: &str, place: usize) -> usize {
    let mut lower = 0;
    let before = text.char_indices().find(|(_, c)| {
        let is_reached = lower >= place;
        lower += c.to_lowercase().map(char::len_utf8).sum::<usize>();
        is_reached
    });
    before.map_or(text.len(), |(at, _)| at)
}

/// From where on a sentence in lower case is negated: behind the first word or phrase that does it.
fn negated_from(lower: &str) -> Option<usize> {
    let phrase = NEGATING_PHRASES.iter().filter_map(|phrase| occurrences(lower, phrase).next()).map(|at| at.end).min();
    let is_between = |c: char| !is_of_word(c);
    let mut end = 0;
    let word = lower.split_inclusive(is_between).find_map(|word| {
        end += word.len();
        let alone = word.strip_suffix(is_between).unwrap_or(word);
        let negates = NEGATIONS.contains(&alone) || alone.ends_with("n't");
        negates.then_some(end - word.len() + alone.len())
    });
    phrase.into_iter().chain(word).min()
}

/// A table of which bytes are among these.
pub(crate) const fn byte_set(bytes: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] = true;
        at += 1;
    }
    table
}

/// Returns the characters that end a quotation that `c` begins; none if `c` begins none.
pub(crate) fn closing(c: char) -> Option<&'static [char]> {
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

/// Finds the end of the quotation that begins with the character `c` of a line.
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
