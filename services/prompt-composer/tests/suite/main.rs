//! Composed prompts, their files, and requests over the in-memory server.

#![allow(clippy::disallowed_methods, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod agents;
mod ai_config;
mod compose;
mod content;
mod explain;
mod golden;
mod judge;
mod precedence;
mod reload;
mod requests;
mod rules;
mod templates;
mod warnings;
mod world;
