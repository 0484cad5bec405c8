//! The bus over the in-memory server.

#![allow(clippy::panic, clippy::unwrap_used, clippy::wildcard_enum_match_arm, reason = "a test fails by panicking")]

mod archive;
mod body;
mod compaction;
mod mail;
mod memory;
mod requested_results;
mod reset;
mod session_index;
mod shares;
mod support;
mod two_histories;
mod worker;
