//! The built-in tools, and those of MCP servers and HTTP endpoints.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod command;
mod fetch;
mod mail;
mod mcp;
mod plans;
mod served;
#[path = "../../../../crates/tool/tests/serve/server.rs"]
mod server;
mod webhook;
