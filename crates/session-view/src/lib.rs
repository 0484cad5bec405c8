//! View of a session for a person: its notifications as lines, its gates as questions, and the screen of a chat.
//!
//! This crate knows no fleet: it gets notifications, and returns lines and requests.
//!
//! # Layout
//!
//! - [`notification`] parses what the edge sends; [`completion`] and [`spend_sum`] follow it.
//! - [`render`] makes lines of it, with [`tool_summary`] for tool calls and [`delegation`] for sessions below.
//! - [`gate_prompt`] makes answers to gates.
//! - [`chat`] has the parts of a session at a terminal.

pub mod chat;
pub mod completion;
pub mod delegation;
pub mod gate_prompt;
pub mod notification;
pub mod render;
pub mod spend_sum;
pub mod tool_summary;
