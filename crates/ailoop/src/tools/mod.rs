//! Tools for those who write them: describe, try, watch and verify them.
//!
//! Most modules are pure: they make calls and arguments, parse replies, check them and format the results. Only
//! [`tool_client`] and [`verify::examine`] use NATS.

pub(crate) mod activity;
pub(crate) mod describe;
pub(crate) mod sample;
pub(crate) mod tool_client;
pub(crate) mod tool_reply;
pub(crate) mod trial_call;
pub(crate) mod verify;
