//! Tools as whoever builds them sees them: described, tried, watched, and held against the protocol.
//!
//! What is decided here needs no bus: making calls and arguments, reading replies, judging them, showing it. Only
//! [`ask`] and [`verify::examine`] speak to NATS.

pub mod ask;
pub mod call;
pub mod describe;
pub mod reply;
pub mod sample;
pub mod verify;
pub mod watch;
