//! Figures of the pure core.

/// A figure: its name and value, in microseconds or as a ratio.
pub(crate) type Timed = (&'static str, f64);
