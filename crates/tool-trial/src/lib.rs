//! Tools for those who write them: describe, try, watch and verify them.
//!
//! Most modules are pure: they make calls and arguments, parse replies, check them and format the results. Only
//! [`tool_client`] and [`verify::examine`] use NATS.

pub mod activity;
pub mod describe;
mod sample;
pub mod tool_client;
pub mod tool_reply;
pub mod trial_call;
pub mod verify;
