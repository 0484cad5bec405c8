//! Configuration, health and reloading.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod health;
mod own_process;
mod reload;
mod reload_warnings;
