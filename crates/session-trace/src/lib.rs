//! The spans of a turn, which follow from the session's log.
//!
//! The log has all that a trace of a turn needs: when it began and ended, which calls it made, what became of each, and
//! what was decided. So the replica that ends a turn makes these spans from the log, whichever processes took part and
//! whichever of them died. `ailoop trace` makes the same spans of a session at any later time. Spans of tries, which
//! only the process of the try knows, are children of these. See ADR 50.

mod content;
mod turn;

pub use turn::{TurnFacts, TurnSpans, session_spans, turn_spans};
