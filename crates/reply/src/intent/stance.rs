//! Stances of sentences about another step.

/// Stance of a sentence about another step: the last stance of a reply counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stance {
    /// The model names work that it does next.
    Announces,
    /// Something is left to do.
    Unfinished,
    /// The model says what its text is about to tell.
    Reports,
    /// The reader is to decide or to answer, or the model waits.
    Asks,
    /// The reader is asked to act.
    Requests,
    /// The model says that all is done.
    Done,
    /// Nothing about going on.
    Neutral,
}
