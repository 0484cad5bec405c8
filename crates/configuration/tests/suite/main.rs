//! Files that processes read: what they mean, and what makes them refused.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod budgets;
mod models;
