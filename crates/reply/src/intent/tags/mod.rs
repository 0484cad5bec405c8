//! Tags: the meanings of words and phrases of the lexicon.

pub(super) mod english;
pub(super) mod european;

/// Meanings of words, as a set of bits.
pub(crate) type Tags = u64;

/// A section of a file of words, and what its phrases stand for.
pub(crate) type Section = (&'static str, Tags);
