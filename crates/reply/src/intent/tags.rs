//! Tags: the meanings of words and phrases of the lexicon.

/// Meanings of words, as a set of bits.
pub(super) type Tags = u64;

/// A section of a file of words, and what its phrases stand for.
pub(super) type Section = (&'static str, Tags);
