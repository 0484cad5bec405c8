//! Replies of models: what is shown, read and decided.

#![allow(clippy::panic, clippy::print_stderr, clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod calls;
mod damage;
mod intent;
mod patterns;
mod split;
