//! A reply's prose: what of it the model says itself, and in which sentence.

use std::ops::Range;

use regex::Match;

/// Bytes of a reply that are read, from its end: what a model says about going on stands there.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Words after which nothing in the same sentence says that all is done.
const NEGATIONS: &[&str] =
    &["not", "never", "almost", "nearly", "once", "until", "before", "when", "if", "unless", "cannot"];
/// The same, of several words.
const NEGATING_PHRASES: &[&str] = &["yet to", "as soon as", "far from", "how ", "whether "];
/// Words before an announcement that make it an offer, or depend on the user.
const CONDITIONS: &[&str] = &[
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
const IDLE: &[&str] = &[
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
#[derive(Debug)]
pub(crate) struct Prose {
    pub(crate) text: String,
    quoted: Vec<Range<usize>>,
}

impl Prose {
    pub(crate) fn of(text: &str) -> Self {
        let from = text.ceil_char_boundary(text.len().saturating_sub(TEXT_BYTES_MAX));
        let mut prose = Self { text: String::with_capacity(text.len() - from), quoted: Vec::new() };
        let mut fenced = false;
        for line in text[from..].split_inclusive('\n') {
            let fence = line.trim_start().starts_with("```");
            if fenced || fence || line.trim_start().starts_with('>') {
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
        for (at, c) in line.char_indices() {
            if quote.is_none()
                && let Some(end) = closing(line, at, c)
            {
                quote = Some((self.text.len() + 1, end));
            } else if let Some((begin, end)) = quote
                && end == at
            {
                self.quoted.push(begin..self.text.len());
                quote = None;
            }
            self.text.push(plain(c));
        }
    }

    /// Whether somebody else says it.
    pub(crate) fn is_quoted(&self, found: &Match<'_>) -> bool {
        // A pattern may begin at the end of the sentence before, or be about quotes itself.
        let lead = found.as_str().find(|c: char| c.is_alphanumeric() || c == '"').unwrap_or(0);
        let at = found.start() + lead;
        self.quoted.iter().any(|range| range.contains(&at))
    }

    /// Whether a negation stands in the sentence, before the end of what was found.
    pub(crate) fn is_negated(&self, found: &Match<'_>) -> bool {
        let lower = self.sentence_before(found.end()).to_lowercase();
        let mut words = lower.split(|c: char| !c.is_alphanumeric() && c != '\'');
        NEGATING_PHRASES.iter().any(|phrase| lower.contains(phrase))
            || words.any(|word| NEGATIONS.contains(&word) || word.ends_with("n't"))
    }

    /// Whether it is a question, an offer, or waits for the user.
    pub(crate) fn is_asked(&self, found: &Match<'_>) -> bool {
        let after = &self.text[found.end()..];
        let end = boundaries(after).next();
        if end.is_some_and(|end| after[..end].ends_with('?')) {
            return true;
        }
        let whole = self.sentence_before(found.end()).len() + end.unwrap_or(after.len());
        let begin = found.end() - self.sentence_before(found.end()).len();
        let lower = self.text[begin..begin + whole].to_lowercase();
        let said = found.as_str().to_lowercase();
        CONDITIONS.iter().any(|condition| lower.contains(condition)) || IDLE.iter().any(|idle| said.contains(idle))
    }

    /// The sentence in which a place is, up to it.
    fn sentence_before(&self, end: usize) -> &str {
        let before = &self.text[..end];
        boundaries(before).filter(|at| *at < end).last().map_or(before, |at| &before[at..])
    }
}

/// The sentence that a text ends with; empty where it holds no word.
pub(crate) fn last_sentence(text: &str) -> String {
    let prose = Prose::of(text.trim_end());
    let whole = prose.text.trim_end();
    let ends = boundaries(whole).filter(|at| *at < whole.len());
    let begin = ends.last().unwrap_or(0);
    whole[begin..].trim().to_owned()
}

/// Where sentences end.
fn boundaries(text: &str) -> impl Iterator<Item = usize> {
    let ends = |at: usize, c: char| {
        let rest = &text[at + c.len_utf8()..];
        c == '\n'
            || (matches!(c, '.' | '!' | '?' | ';' | '\u{2026}') && rest.chars().next().is_none_or(char::is_whitespace))
    };
    text.char_indices().filter(move |(at, c)| ends(*at, *c)).map(|(at, c)| at + c.len_utf8())
}

/// Where the quotation ends that begins with this character; none when it begins none.
fn closing(line: &str, at: usize, c: char) -> Option<usize> {
    let rest = &line[at + c.len_utf8()..];
    let ends: &[char] = match c {
        '"' => &['"'],
        '`' => &['`'],
        '\u{201C}' => &['\u{201D}'],
        '\u{201E}' => &['\u{201C}', '\u{201D}'],
        '\u{AB}' => &['\u{BB}'],
        '\u{2018}' => &['\u{2019}'],
        _ => return None,
    };
    let is_end = |(at, found): (usize, char)| {
        // A closing single quote is an apostrophe where a letter follows.
        let follows = rest[at + found.len_utf8()..].chars().next();
        ends.contains(&found) && (c != '\u{2018}' || !follows.is_some_and(char::is_alphanumeric))
    };
    let found = rest.char_indices().find(|place| is_end(*place))?;
    Some(at + c.len_utf8() + found.0)
}

fn plain(c: char) -> char {
    match c {
        '\u{2018}' | '\u{2019}' | '\u{02BC}' => '\'',
        '\u{201C}' | '\u{201D}' | '\u{201E}' => '"',
        other => other,
    }
}
