//! Tool calls and the catalogue over the in-memory server.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod executor;
mod wire_names;
