//! The sentences of a reply's end, in lower case.

use std::ops::Range;

use super::script::is_cjk;
use crate::prose::{byte_set, closing, plain};

/// Stands for a span of code or a quotation: a noun that says nothing.
pub(super) const SPAN: char = '\u{1}';

/// End of a sentence: a punctuation mark, or the end of its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Full,
    Question,
    Colon,
    /// An ellipsis, of one character or three dots.
    Dots,
    /// The end of its line.
    Line,
}

/// Kind of the line that contains a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    Text,
    Heading,
    /// An item of a list.
    Item,
}

/// A sentence in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sentence {
    range: Range<usize>,
    pub(super) end: End,
    pub(super) kind: LineKind,
    /// An item that is marked as done.
    pub(super) is_ticked: bool,
    /// Number of its paragraph, from 0.
    pub(super) paragraph: usize,
}

/// The sentences of a reply's end.
#[derive(Debug, Default)]
pub(super) struct Sentences {
    text: String,
    all: Vec<Sentence>,
    /// Whether code or a quotation follows the last sentence.
    pub(super) is_followed: bool,
}

impl Sentences {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self { text: String::with_capacity(bytes), ..Self::default() }
    }

    /// Adds the sentences of a line. `is_followed`: whether code or a quotation follows it.
    pub(super) fn add_line(&mut self, line: &str, paragraph: usize, is_followed: bool) {
        let before = self.all.len();
        self.line(line, paragraph);
        // A line without a word is none.
        self.is_followed &= self.all.len() == before;
        self.is_followed |= is_followed;
    }

    /// Drops all sentences but the last ones.
    pub(super) fn keep_last(&mut self, count: usize) {
        let spare = self.all.len().saturating_sub(count);
        self.all.drain(..spare);
    }

    pub(super) fn all(&self) -> &[Sentence] {
        &self.all
    }

    pub(super) fn text(&self, sentence: &Sentence) -> &str {
        &self.text[sentence.range.clone()]
    }

    fn line(&mut self, line: &str, paragraph: usize) {
        let (kind, line) = marks(line);
        let is_ticked = kind == LineKind::Item && is_ticked(line);
        let line = if kind == LineKind::Item { without_box(line) } else { line };
        let mut begin = self.text.len();
        let mut rest = line;
        loop {
            // Most of a text is letters and blanks.
            let run = rest.bytes().position(|byte| SIGNS[usize::from(byte)]).unwrap_or(rest.len());
            let from = self.text.len();
            self.text.push_str(&rest[..run]);
            self.text[from..].make_ascii_lowercase();
            rest = &rest[run..];
            let Some(c) = rest.chars().next() else { break };
            let length = c.len_utf8();
            let next = rest[length..].chars().next();
            if let Some(skip) = span(rest, c) {
                self.text.push(SPAN);
                let (span, behind) = rest.split_at(skip);
                rest = behind;
                // "It ends with \u{201C}We are done.\u{201D} Moving to scene two."
                let is_whole =
                    span.trim_end_matches(['"', '\u{201C}', '\u{201D}', '\u{BB}']).ends_with(['.', '!', '?']);
                let mut after = behind.chars();
                if is_whole && after.next() == Some(' ') && after.next().is_some_and(char::is_uppercase) {
                    self.push(begin, End::Full, kind, is_ticked, paragraph);
                    begin = self.text.len();
                }
                continue;
            }
            rest = &rest[length..];
            // The last of several dots decides.
            if c == '.' && next == Some('.') {
                continue;
            }
            let before = &line[..line.len() - rest.len()];
            if let Some(end) = find_end(c, before, rest, &self.text[begin..]) {
                // "1." and "e.g." end no sentence.
                if end == End::Full && c == '.' && is_abbreviation(&self.text[begin..]) {
                    self.text.push(c);
                    continue;
                }
                self.push(begin, end, kind, is_ticked, paragraph);
                begin = self.text.len();
            } else if matches!(c, '*' | '_' | '~') && (c != '_' || !is_within_word(&self.text, next)) {
                // Emphasis.
            } else {
                match plain(c) {
                    c if c.is_ascii() => self.text.push(c.to_ascii_lowercase()),
                    c => self.text.extend(c.to_lowercase()),
                }
            }
        }
        self.push(begin, End::Line, kind, is_ticked, paragraph);
    }

    fn push(&mut self, begin: usize, end: End, kind: LineKind, is_ticked: bool, paragraph: usize) {
        let text = &self.text[begin..];
        let from = begin + text.len() - text.trim_start_matches(is_decoration).len();
        let to = begin + text.trim_end_matches(is_decoration).len();
        if from < to {
            self.all.push(Sentence { range: from..to, end, kind, is_ticked, paragraph });
        } else if end == End::Question
            && let Some(last) = self.all.last_mut()
        {
            // "?!" and "??".
            last.end = End::Question;
        }
    }
}

/// Bytes that end or begin something, or belong to a character of more bytes.
static SIGNS: [bool; 256] = {
    let mut table = byte_set(b".!?;:*_~`\"");
    let mut at = 0x80;
    while at < 256 {
        table[at] = true;
        at += 1;
    }
    table
};

/// Returns the kind of a line, and its text without the mark of a heading or an item.
fn marks(line: &str) -> (LineKind, &str) {
    let line = line.trim();
    if let Some(rest) = line.strip_prefix('#') {
        return (LineKind::Heading, rest.trim_start_matches('#').trim_start());
    }
    let item = line.strip_prefix(['-', '*', '+', '\u{2022}']).filter(|rest| rest.starts_with(' ')).or_else(|| {
        let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
        (digits.len() < line.len()).then(|| digits.strip_prefix(['.', ')']))?.filter(|rest| rest.starts_with(' '))
    });
    match item {
        Some(rest) => (LineKind::Item, rest.trim_start()),
        None => (LineKind::Text, line),
    }
}

/// Whether an item is marked as done.
fn is_ticked(item: &str) -> bool {
    item.starts_with(['\u{2705}', '\u{2714}', '\u{2611}', '\u{2713}'])
        || item.starts_with("[x]")
        || item.starts_with("[X]")
}

/// An item without the box before it.
fn without_box(item: &str) -> &str {
    ["[x]", "[X]", "[ ]"].iter().find_map(|mark| item.strip_prefix(mark)).unwrap_or(item).trim_start()
}

/// Returns the length in bytes of the span of code or the quotation that begins here; none if none does.
fn span(rest: &str, c: char) -> Option<usize> {
    let close: &[char] = match c {
        // It may be an apostrophe.
        '\u{2018}' => return None,
        '\u{300C}' => &['\u{300D}'],
        '\u{300E}' => &['\u{300F}'],
        _ => closing(c)?,
    };
    let inner = &rest[c.len_utf8()..];
    let at = inner.find(close)?;
    let end = inner[at..].chars().next().map_or(0, char::len_utf8);
    Some(c.len_utf8() + at + end)
}

/// Returns the end that a character is for its sentence; none if the sentence goes on. In the line, `before` ends with
/// the character, and `rest` follows it.
fn find_end(c: char, before: &str, rest: &str, sentence: &str) -> Option<End> {
    let next = rest.chars().next();
    match c {
        '.' if before.ends_with("...") && !next.is_some_and(char::is_alphanumeric) => Some(End::Dots),
        '\u{2026}' => Some(End::Dots),
        '.' | '!' | ';' if next.is_none_or(|next| !next.is_alphanumeric() && next != '/') => Some(End::Full),
        '?' if next.is_none_or(|next| !next.is_alphanumeric() || is_cjk(next)) => Some(End::Question),
        '!' if next.is_some_and(is_cjk) => Some(End::Full),
        // "(owner: IT)" is one remark.
        ':' if next.is_none_or(|next| next.is_whitespace() || matches!(next, '*' | '_'))
            && !is_in_parentheses(sentence) =>
        {
            Some(End::Colon)
        }
        // "Built fine \u{2705} Now on to the next one."
        '\u{2705}' | '\u{2714}' | '\u{2611}' | '\u{274C}' | '\u{1F300}'..='\u{1FAFF}'
            if rest
                .trim_start_matches(|c: char| !c.is_alphanumeric())
                .starts_with(|c: char| c.is_uppercase() || is_cjk(c)) =>
        {
            Some(End::Full)
        }
        '\u{3002}' | '\u{FF01}' | '\u{FF1B}' => Some(End::Full),
        '\u{FF1F}' => Some(End::Question),
        '\u{FF1A}' => Some(End::Colon),
        _ => None,
    }
}

/// Whether what a dot follows is shortened by it: one letter, or a number at the beginning.
fn is_abbreviation(sentence: &str) -> bool {
    let word = sentence.rsplit(|c: char| c.is_whitespace()).next().unwrap_or_default();
    let is_number = !word.is_empty() && word.chars().all(|c| c.is_ascii_digit());
    (is_number && word.len() == sentence.trim_start().len())
        || matches!(word, "e.g" | "i.e" | "etc" | "z.b" | "vs" | "approx")
}

fn is_in_parentheses(sentence: &str) -> bool {
    sentence.rfind('(') > sentence.rfind(')')
}

fn is_within_word(before: &str, next: Option<char>) -> bool {
    before.chars().next_back().is_some_and(char::is_alphanumeric) && next.is_some_and(char::is_alphanumeric)
}

/// White space, dashes, emoji and other signs around a sentence.
fn is_decoration(c: char) -> bool {
    !c.is_alphanumeric() && !matches!(c, SPAN | '\'' | ')' | '(' | '\u{BF}' | '\u{A1}' | '%' | '/' | '$' | '#')
}
