//! The gateway over the in-memory server, against model servers over HTTP.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod gateway;
mod http;
