//! The plain way of hearing patterns: each over the whole text, each match weighed where it is found. The fast way must
//! never hear anything else.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::LazyLock;

use proptest::prelude::*;
use regex::{Match, Regex, RegexBuilder};

use crate::prose::{
    AFTERWARDS, ANNOUNCING, CIRCUMSTANCES, CONDITIONS, IDLE, IDLE_GAP_BYTES_MAX, NEGATING_PHRASES, NEGATIONS, Prose,
    TEXT_BYTES_MAX, plain,
};
use crate::{Patterns, TEMPLATES, template};

struct ReferenceMatcher {
    text: String,
    quoted: Vec<Range<usize>>,
}

impl ReferenceMatcher {
    fn of(text: &str) -> Self {
        let from = text.ceil_char_boundary(text.len().saturating_sub(TEXT_BYTES_MAX));
        let mut prose = Self { text: String::new(), quoted: Vec::new() };
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

    fn line(&mut self, line: &str) {
        let mut quote: Option<(usize, usize)> = None;
        for (at, c) in line.char_indices() {
            if let Some((begin, end)) = quote {
                if end == at {
                    self.quoted.push(begin..self.text.len());
                    quote = None;
                }
            } else if let Some(end) = closing(line, at, c) {
                quote = Some((self.text.len() + 1, end));
            }
            self.text.push(plain(c));
        }
    }

    fn is_quoted(&self, found: &Match<'_>) -> bool {
        let lead = found.as_str().find(|c: char| c.is_alphanumeric() || c == '"').unwrap_or(0);
        let at = found.start() + lead;
        self.quoted.iter().any(|range| range.contains(&at))
    }

    fn is_negated(&self, found: &Match<'_>) -> bool {
        let lower = self.sentence_before(found.end()).to_lowercase();
        let mut words = lower.split(|c: char| !is_of_word(c));
        NEGATING_PHRASES.iter().any(|phrase| !places(&lower, phrase).is_empty())
            || words.any(|word| NEGATIONS.contains(&word) || word.ends_with("n't"))
            || self.is_announced(found)
    }

    fn is_announced(&self, found: &Match<'_>) -> bool {
        let sentence = self.sentence_before(found.end());
        let begin = found.end() - sentence.len();
        let Some(before) = self.text.get(begin..found.start()) else { return false };
        let (lower, all) = (sentence.to_lowercase(), self.text[begin..].to_lowercase());
        let announces = |(at, end): &(usize, usize)| {
            *end <= before.to_lowercase().len()
                && !IDLE.iter().copied().flatten().any(|idle| phrase_at(&all, *at, idle).is_some())
        };
        ANNOUNCING.iter().copied().flatten().any(|phrase| places(&lower, phrase).iter().any(announces))
    }

    fn is_asked(&self, found: &Match<'_>) -> bool {
        let after = &self.text[found.end()..];
        let end = boundaries(after).next();
        let before = self.sentence_before(found.end()).len();
        let begin = found.end() - before;
        let sentence = &self.text[begin..begin + before + end.unwrap_or(after.len())];
        let lower = sentence.to_lowercase();
        let first = lower.find(is_of_word).unwrap_or(lower.len());
        let earlier = last_of(self.text[..begin].trim_end());
        let is_question = |text: &str| text.ends_with('?') || text.ends_with('\u{FF1F}');
        end.is_some_and(|end| is_question(&after[..end]))
            || is_conditional(&lower)
            || AFTERWARDS.iter().any(|phrase| phrase_at(&lower, first, phrase).is_some())
                && (is_question(earlier) || is_conditional(&earlier.to_lowercase()))
            || self.is_idle(found)
    }

    fn is_idle(&self, found: &Match<'_>) -> bool {
        let after = &self.text[found.end()..];
        let is_over = boundaries(&self.text).any(|at| at == found.end());
        let end = if is_over { 0 } else { boundaries(after).next().unwrap_or(after.len()) };
        let lower = self.text[..found.end() + end].to_lowercase();
        let [start, behind] = [found.start(), found.end()].map(|at| self.text[..at].to_lowercase().len());
        let goes_on = |at: usize| at - behind <= IDLE_GAP_BYTES_MAX && !lower[behind..at].contains(is_of_word);
        let is_near = |(at, _): &(usize, usize)| *at >= start && (*at < behind || goes_on(*at));
        IDLE.iter().copied().flatten().any(|idle| places(&lower, idle).iter().any(is_near))
    }

    fn sentence_before(&self, end: usize) -> &str {
        last_of(&self.text[..end])
    }

    /// The pattern whose match ends last among those that count, and where it ends.
    fn last<'a>(&self, list: &'a [Regex], counts: impl Fn(&Match<'_>) -> bool) -> Option<(&'a str, usize)> {
        let ends = list.iter().filter_map(|regex| {
            let matches = regex.find_iter(&self.text).filter(|found| !self.is_quoted(found) && counts(found));
            matches.last().map(|found| (regex.as_str(), found.end()))
        });
        ends.reduce(|best, next| if next.1 > best.1 { next } else { best })
    }
}

/// The sentence that a text ends with.
fn last_of(text: &str) -> &str {
    boundaries(text).filter(|at| *at < text.len()).last().map_or(text, |at| &text[at..])
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '\''
}

/// Returns the end of the phrase that begins at a place, at word boundaries.
fn phrase_at(text: &str, at: usize, phrase: &str) -> Option<usize> {
    let rest = text[at..].strip_prefix(phrase.trim_end_matches('*'))?;
    let is_bound = phrase.ends_with('*') || !rest.starts_with(is_of_word);
    (is_bound && !text[..at].ends_with(is_of_word)).then_some(text.len() - rest.len())
}

/// Finds the beginning and the end of each occurrence of a phrase.
fn places(text: &str, phrase: &str) -> Vec<(usize, usize)> {
    text.char_indices().filter_map(|(at, _)| Some((at, phrase_at(text, at, phrase)?))).collect()
}

fn is_conditional(lower: &str) -> bool {
    let describes = |at: usize| {
        let words: Vec<&str> = lower[..at].split_whitespace().collect();
        let [before @ .., verb] = words.as_slice() else { return false };
        verb.ends_with('s') && before.iter().rev().take(2).any(|word| ["that", "which", "who"].contains(word))
    };
    let counts = |condition: &&str| {
        let mut places = places(lower, condition).into_iter();
        places.any(|(at, _)| !CIRCUMSTANCES.contains(condition) || !describes(at))
    };
    CONDITIONS.iter().copied().flatten().any(counts)
}

fn boundaries(text: &str) -> impl Iterator<Item = usize> {
    let ends = |at: usize, c: char| {
        let rest = &text[at + c.len_utf8()..];
        let is_before_space = rest.chars().next().is_none_or(char::is_whitespace);
        matches!(c, '\n' | '\u{3002}' | '\u{FF01}' | '\u{FF1F}')
            || (matches!(c, '.' | '!' | '?' | ';' | '\u{2026}') && is_before_space)
    };
    text.char_indices().filter(move |(at, c)| ends(*at, *c)).map(|(at, c)| at + c.len_utf8())
}

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
        let follows = rest[at + found.len_utf8()..].chars().next();
        ends.contains(&found) && (c != '\u{2018}' || !follows.is_some_and(char::is_alphanumeric))
    };
    rest.char_indices().find(|place| is_end(*place)).map(|(found, _)| at + c.len_utf8() + found)
}

/// Both lists, compiled in both ways.
struct Both {
    quick: Patterns,
    continuation: Vec<Regex>,
    termination: Vec<Regex>,
}

impl Both {
    fn of(continuation: &[String], termination: &[String]) -> Self {
        let build = |pattern: &String| RegexBuilder::new(pattern).case_insensitive(true).multi_line(true).build();
        let compiled = |list: &[String]| list.iter().map(|pattern| build(pattern).unwrap()).collect();
        Self {
            quick: Patterns::of(continuation, termination).unwrap(),
            continuation: compiled(continuation),
            termination: compiled(termination),
        }
    }

    fn check(&self, text: &str) -> Result<(), TestCaseError> {
        let prose = ReferenceMatcher::of(text);
        let done = prose.last(&self.termination, |found| !prose.is_negated(found));
        let more = prose.last(&self.continuation, |found| !prose.is_asked(found));
        let plainly = match (done, more) {
            (Some(done), Some(more)) if more.1 > done.1 => Some((true, more.0)),
            (Some(done), _) => Some((false, done.0)),
            (None, more) => more.map(|more| (true, more.0)),
        };
        let quickly = self.quick.match_text(text).map(|found| (found.continues, found.pattern));
        prop_assert_eq!(quickly, plainly, "{:?} {:?}", text, self.quick);
        Ok(())
    }
}

/// The templates, compiled once.
static TEMPLATED: LazyLock<Vec<Both>> = LazyLock::new(|| {
    let settings = TEMPLATES.iter().filter_map(|known| template(known.name));
    settings.map(|settings| Both::of(&settings.continuation_patterns, &settings.termination_patterns)).collect()
});

/// Every match is offered, in the same order, with only those lines looked at in which one can be.
fn every_match(both: &Both, text: &str) -> Result<(), TestCaseError> {
    let prose = Prose::of(text);
    let places = both.quick.prefilter.locate(&prose.text);
    for ((quick, plain), place) in
        both.quick.all.iter().zip(both.termination.iter().chain(&both.continuation)).zip(places)
    {
        let offered = RefCell::new(Vec::new());
        let refuse = |found: &Range<usize>| {
            offered.borrow_mut().push(found.clone());
            false
        };
        quick.last(&prose, &place, 0, refuse);
        let mut offered = offered.into_inner();
        offered.reverse();
        let plainly: Vec<Range<usize>> = plain.find_iter(&prose.text).map(|found| found.range()).collect();
        prop_assert_eq!(&offered, &plainly, "{} in {:?}, {:?}", plain, prose.text, place);
    }
    Ok(())
}

/// Phrases that the templates look for, with all that can come between.
fn replies() -> impl Strategy<Value = String> {
    let phrase = prop::sample::select(vec![
        "now I'll read",
        "I\u{2019}m going to look",
        "let me check",
        "let me proceed",
        "next",
        "Next step:",
        "next, reading it now",
        "checking",
        "all",
        "done",
        "all done",
        "finished",
        "is done",
        "is complete",
        "completed successfully",
        "successfully added",
        "task",
        "every",
        "not",
        "once",
        "If you like",
        "please",
        "isn't",
        "everything is in place",
        "no further",
        "I'll wait",
        "the next step is to",
        "that's it",
        "I've finished",
        "plan is ready",
        "summary of changes",
        "now for ",
        "here I go",
        "let you know",
        "let me know",
        "let me be",
        "leave it",
        "show",
        "how",
        "whether it",
        "if you",
        "when you resize",
        "that appears",
        "After that",
        "then",
        "I will",
    ]);
    let between = prop::sample::select(BETWEEN.to_vec());
    let pieces = prop::collection::vec(prop_oneof![phrase, between], 0..24);
    pieces.prop_map(|pieces| pieces.concat())
}

/// Separators between phrases of generated texts.
const BETWEEN: &[&str] = &[
    " ",
    " ",
    " ",
    ", ",
    ". ",
    ".",
    "!",
    "? ",
    "; ",
    ": ",
    "\u{2026} ",
    "\u{3002}",
    "\u{FF01}",
    "\u{FF1F}",
    "... ",
    "\n",
    "\n",
    "\n",
    "\n\n",
    "\r\n",
    "\n- ",
    "\n* **",
    "**",
    "\n> ",
    "\n```\n",
    "```",
    "`",
    "\"",
    "\u{201C}",
    "\u{201D}",
    "\u{201E}",
    "\u{2018}",
    "\u{2019}",
    "\u{AB}",
    "\u{BB}",
    "\u{2014}",
    " \u{2013} ",
    "\u{2705}",
    "\u{E9}",
    "\u{17F}",
    "\u{212A}",
    "\u{130}",
    "\u{1F980}",
    "\u{FE0F}",
    "\t",
    "_",
    "'",
    "-",
    "",
    "\u{A0}",
    "\u{2028}",
];

/// Words that are the same for patterns and texts, so that many match.
const WORDS: &[&str] = &["all", "done", "alldone", "ask", "k. ", ".al", "...", "x", "sss", "a"];

fn texts() -> impl Strategy<Value = String> {
    let ends = prop::sample::select(vec![
        "\n", "\n", "\n", " ", ".\n", "\n.\n", ". ", ".", "\n- ", "\u{17F}", "\u{212A}", "\r\n", "\u{2014}", "S",
        "\u{E9}",
    ]);
    let word = prop::sample::select(WORDS.to_vec());
    prop::collection::vec(prop_oneof![word, ends], 0..16).prop_map(|pieces| pieces.concat())
}

/// Patterns of all that the syntax has.
fn patterns() -> impl Strategy<Value = String> {
    let word = prop::sample::select(WORDS.to_vec()).prop_map(str::to_owned);
    let other = prop::sample::select(vec![
        r"\b",
        "^",
        "$",
        r"\A",
        r"\z",
        r"\B",
        r"\b{start}",
        r"\b{end-half}",
        r"\w+",
        r"\w",
        ".",
        ".*",
        ".+?",
        ".?",
        "[a-z]{2,}",
        "[^.!?]*",
        "[ab]",
        "[^a]",
        r"[^\n]{0,9}",
        "[kK]",
        " ",
        " ",
        "(?s:.)",
        "(?s:.*)",
        "(?-i:K)",
        "(?i:S)",
        "(?R:$)",
        "(?-m:^)",
        "(?-m:$)",
        "(?-u:\\b)",
        "\u{E9}",
        "\u{17F}",
        "\u{2014}",
        "(?:)",
        "[a&&b]",
        "(?i:all|done)",
    ]);
    let around = prop::sample::select(vec![
        r"\s+",
        r"\s*",
        r"\s",
        r"\W*",
        r"\W",
        "\n",
        r"\n*",
        r"[.!?:]\s+",
        r"\W+",
        r"(?:^|[.]\s+)",
        r"(?:\s*$|\.)",
    ]);
    let leaf = prop_oneof![4 => word, 2 => other.prop_map(str::to_owned), 3 => around.prop_map(str::to_owned)];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            4 => prop::collection::vec(inner.clone(), 1..5).prop_map(|parts| parts.concat()),
            2 => prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("(?:{})", parts.join("|"))),
            1 => (inner, prop::sample::select(vec!["?", "*", "+", "+?", "{2}", "{1,3}", "{0,2}", "{1}"]))
                .prop_map(|(part, times)| format!("({part}){times}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn templates_match_like_the_reference_matcher(text in replies()) {
        for both in TEMPLATED.iter() {
            both.check(&text)?;
        }
    }

    #[test]
    fn matcher_agrees_with_the_reference_matcher(
        texts in prop::collection::vec(texts(), 1..8),
        continuation in prop::collection::vec(patterns(), 1..3),
        termination in prop::collection::vec(patterns(), 0..2),
    ) {
        let usable = |list: Vec<String>| -> Vec<String> {
            list.into_iter().filter(|one| Patterns::check(one).is_ok()).collect()
        };
        let both = Both::of(&usable(continuation), &usable(termination));
        for text in texts {
            every_match(&both, &text)?;
            both.check(&text)?;
        }
    }
}
