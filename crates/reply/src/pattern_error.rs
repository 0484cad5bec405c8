//! Error of a pattern that cannot be used.

/// A pattern that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatternError {
    /// Path of the pattern or list, such as `continuation_patterns[3]`; empty if one pattern was checked alone.
    pub place: String,
    /// First 80 characters of the pattern; empty if the whole list cannot be used.
    pub pattern: String,
    /// Reason, with the position if there is one, and what to do.
    pub why: String,
}

impl PatternError {
    pub(crate) fn new(pattern: &str, why: String) -> Self {
        Self { place: String::new(), pattern: pattern.chars().take(80).collect(), why }
    }

    pub(crate) fn list(place: &str, why: String) -> Self {
        Self { place: place.to_owned(), pattern: String::new(), why }
    }
}

impl std::fmt::Display for PatternError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { place, pattern, why } = self;
        match (place.is_empty(), pattern.is_empty()) {
            (true, _) => write!(f, "pattern {pattern:?} cannot be used: {why}"),
            (false, true) => write!(f, "{place} cannot be used: {why}"),
            (false, false) => write!(f, "{place}: pattern {pattern:?} cannot be used: {why}"),
        }
    }
}

impl std::error::Error for PatternError {}
