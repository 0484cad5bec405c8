//! Watching a session: the log from a cursor on, then live events, in order and without gaps.

pub(crate) mod event_stream;
pub(crate) mod feed;
mod log_range;
pub(crate) mod merger;
pub(crate) mod viewer;
pub(crate) mod viewer_event;

pub use viewer_event::parse_attempt;

/// Name of the last event of a watch that failed. No topic of the log has it.
pub(crate) const WATCH_FAILED: &str = "watch.failed";

#[cfg(test)]
mod merger_tests;
