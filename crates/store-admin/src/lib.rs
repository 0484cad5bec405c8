//! Administration of the streams of a fleet, over NATS and without its edge.
//!
//! # Layout
//!
//! - [`backup`] writes and restores all streams.
//! - [`export_import`] makes a file of a session and a session of a file.
//! - [`move_session`](mod@move_session) takes a session to another cell, and [`erase`] removes it everywhere.

pub mod backup;
pub mod erase;
pub mod export_import;
pub mod move_session;
