//! Orchestrators on the in-memory bus, in virtual time: what they do when the server, the log or a clock is not as it should be.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test says what it expects, and looks for one event"
)]

mod clocks;
mod newer;
mod restored;
mod sizes;
mod world;
