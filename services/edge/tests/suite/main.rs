//! The edge through its doors: real sockets, the bus in memory, and a loop that does as it is told.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod admission;
mod bad_input;
mod commands;
mod connections;
mod dead_letters;
mod idle_memory;
mod listeners;
mod support;
mod watching;
