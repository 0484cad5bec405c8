//! Patterns that speak for going on or for being done, compiled once and bounded in size.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use contract::settings::ContinuationSettings;
use regex::{Regex, RegexBuilder};

/// Bytes of a compiled pattern.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// Bytes of a pattern's text.
const PATTERN_BYTES_MAX: usize = 1 << 10;
/// Patterns of one list.
const PATTERNS_MAX: usize = 32;
/// Bytes of a reply that are searched, from its end: what a model says about going on stands there.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Compiled lists that are kept for the sessions to come.
const SHARED_MAX: usize = 256;

/// Both lists of texts, and what they compile to.
type Shared = HashMap<(Vec<String>, Vec<String>), Arc<Patterns>>;

/// Agents are few and sessions many; compiling costs more time and memory than all else of a session.
static SHARED: LazyLock<Mutex<Shared>> = LazyLock::new(Mutex::default);

/// Words after which a termination match in the same sentence does not count.
const NEGATIONS: &[&str] = &["not", "never", "almost", "once", "until", "before"];

/// A pattern that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError {
    /// Which one.
    pub pattern: String,
    /// Why, with the position where there is one.
    pub why: String,
}

impl std::fmt::Display for PatternError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "pattern {:?}: {}", self.pattern, self.why)
    }
}

impl std::error::Error for PatternError {}

/// Both lists, compiled.
#[derive(Debug, Clone, Default)]
pub struct Patterns {
    continuation: Vec<Regex>,
    termination: Vec<Regex>,
}

impl Patterns {
    /// Compiles both lists, once for all sessions that use the same; the first one that cannot be used is the error.
    pub fn compile(settings: &ContinuationSettings) -> Result<Arc<Self>, PatternError> {
        let lists = (settings.continuation_patterns.clone(), settings.termination_patterns.clone());
        let shared = || SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = shared().get(&lists) {
            return Ok(known.clone());
        }
        let patterns = Arc::new(Self { continuation: compile(&lists.0)?, termination: compile(&lists.1)? });
        let mut shared = shared();
        if shared.len() >= SHARED_MAX {
            shared.clear();
        }
        shared.insert(lists, patterns.clone());
        Ok(patterns)
    }

    /// The first continuation pattern that matches.
    pub fn continues(&self, text: &str) -> Option<&str> {
        let text = plain(text);
        self.continuation.iter().find(|regex| regex.is_match(&text)).map(Regex::as_str)
    }

    /// The first termination pattern that matches outside a negation.
    pub fn terminates(&self, text: &str) -> Option<&str> {
        let text = plain(text);
        let counts = |regex: &&Regex| regex.find_iter(&text).any(|found| !negated(&text, found.start()));
        self.termination.iter().find(counts).map(Regex::as_str)
    }
}

fn compile(list: &[String]) -> Result<Vec<Regex>, PatternError> {
    let refuse = |pattern: &str, why: String| PatternError { pattern: pattern.chars().take(120).collect(), why };
    if list.len() > PATTERNS_MAX {
        return Err(refuse("", format!("{} patterns in one list; at most {PATTERNS_MAX}", list.len())));
    }
    list.iter()
        .map(|pattern| {
            if pattern.len() > PATTERN_BYTES_MAX {
                return Err(refuse(pattern, format!("{} bytes; at most {PATTERN_BYTES_MAX}", pattern.len())));
            }
            RegexBuilder::new(pattern)
                .case_insensitive(true)
                .size_limit(COMPILED_BYTES_MAX)
                .build()
                .map_err(|error| refuse(pattern, error.to_string()))
        })
        .collect()
}

/// The text's end with plain apostrophes and quotes.
fn plain(text: &str) -> String {
    let mut from = text.len().saturating_sub(TEXT_BYTES_MAX);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text[from..]
        .chars()
        .map(|c| match c {
            '\u{2018}' | '\u{2019}' | '\u{02BC}' => '\'',
            '\u{201C}' | '\u{201D}' => '"',
            other => other,
        })
        .collect()
}

/// Whether a negation stands before `at` in the same sentence.
fn negated(text: &str, at: usize) -> bool {
    let before = &text[..at];
    let sentence = before.rfind(['.', '!', '?', '\n', ';']).map_or(before, |end| &before[end + 1..]);
    let lower = sentence.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric() && c != '\'');
    lower.contains("yet to") || words.any(|word| NEGATIONS.contains(&word) || word.ends_with("n't"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns() -> Arc<Patterns> {
        let settings = ContinuationSettings {
            continuation_patterns: vec!["now I'll".into(), "not.*finished".into()],
            termination_patterns: vec!["all done".into(), "finished".into()],
            ..ContinuationSettings::default()
        };
        Patterns::compile(&settings).unwrap()
    }

    #[test]
    fn negations_are_heard() {
        for (text, done) in [
            ("I am finished.", true),
            ("I'm not finished yet.", false),
            ("It isn't all done.", false),
            ("Not so fast. All done.", true),
            ("We have yet to get it finished", false),
            ("Once it is finished I report", false),
            ("Nothing else. All done!", true),
        ] {
            assert_eq!(patterns().terminates(text).is_some(), done, "{text}");
        }
        assert_eq!(patterns().continues("Now I\u{2019}ll read it"), Some("now I'll"));
    }

    #[test]
    fn bad_patterns_are_refused_with_their_place() {
        let settings =
            ContinuationSettings { termination_patterns: vec!["a(b".into()], ..ContinuationSettings::default() };
        let error = Patterns::compile(&settings).unwrap_err();
        assert!(error.to_string().contains("a(b") && error.to_string().contains("unclosed group"), "{error}");
        let huge = ContinuationSettings {
            continuation_patterns: vec![".{1,1000}{1,1000}".into()],
            ..ContinuationSettings::default()
        };
        assert!(Patterns::compile(&huge).is_err());
    }
}
