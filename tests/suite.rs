//! The whole fleet on real nats-servers, and what is shipped around it.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod chaos;
mod deploy;
mod drain;
mod e2e;
mod long_sessions;
mod nats;
