//! The parts that every protocol of the edge shares: sessions, and the rights of a caller over them.
//!
//! # Layout
//!
//! - `access` has credentials and what they grant; `admission`, `fair_queue` and `client_queue` have limits.
//! - `api`, `commands`, `starts` and `watch` perform the methods of the session API; `invoke` calls one by its name.
//! - `turn` is a turn that a client of another protocol begins and follows.
//! - `client_request`, `http_error`, `jsonrpc` and `sse` have the parts that protocols over HTTP share.
//! - `cells` has the connections to the sets of streams, and finds the one of a session.
//!
//! Only `access` and `api` make the values that prove what a caller reaches, so that no protocol can.

pub mod access;
mod admission;
pub mod api;
pub mod api_error;
pub mod cells;
pub mod client_queue;
pub mod client_request;
pub mod clock;
mod command_waiters;
pub mod commands;
mod compose;
pub mod config;
mod dead_letters;
pub mod fair_queue;
pub mod feed;
mod fleet_metrics;
pub mod http_error;
mod inbox;
pub mod invoke;
pub mod jsonrpc;
mod mail;
pub mod params;
pub mod request_body;
pub mod request_trace;
mod session_index;
mod session_log;
pub mod sse;
pub mod starts;
mod stats;
mod tenants;
pub mod turn;
pub mod watch;
