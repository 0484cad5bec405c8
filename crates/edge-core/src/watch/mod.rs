//! Watching a session: the log from a cursor on, then live events, in order and without gaps.

pub mod event_stream;
pub mod viewer;

/// Name of the last event of a watch that failed. No topic of the log has it.
pub const WATCH_FAILED: &str = "watch.failed";
