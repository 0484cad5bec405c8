//! Orchestrators on the in-memory bus, in virtual time, with faults of the server, the log or a clock.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test says what it expects, and looks for one event"
)]

mod allowed_agents;
mod clocks;
mod compaction;
mod marks;
mod newer_version;
mod restored_streams;
mod sizes;
mod turns;
mod world;
