//! Turns, played input by input against the pure loop.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    reason = "tests may, and look for one event"
)]

mod allowed_agents;
mod archive;
mod attempts;
mod bad_commands;
mod bad_input;
mod cancel_turn;
mod children;
mod client_tools;
mod commands;
mod compaction;
mod configure;
mod context;
mod corpus;
mod cut_replies;
mod depth;
mod gates;
mod history;
mod judge;
mod last_word;
mod limits;
mod lost_history;
mod marks;
mod model_errors;
mod old_log;
mod outbound_commands;
mod parts;
mod pauses;
mod readable;
mod signals;
mod stories;
mod talk;
