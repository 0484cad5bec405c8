//! Tool calls over the in-memory server, and the tools that are shipped.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod command;
mod executor;
mod fetch;
mod mail;
mod mcp;
mod plans;
mod served;
mod webhook;
mod words;
