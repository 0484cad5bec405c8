//! Orchestrators on the in-memory bus, in virtual time: what they do when the server, the log or a clock is not as it should be.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it expects")]

mod clocks;
mod newer;
mod restored;
mod sizes;
mod world;
