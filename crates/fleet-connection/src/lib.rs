//! Connection of a command to a fleet: how it is found, and how its edge is called.
//!
//! # Layout
//!
//! - [`client`] calls the edge, and [`stream`] follows the notifications of a session.
//! - [`instance`] is the directory `.ailoop` of a fleet of this machine: `directory_record` says whose it is, and
//!   [`local_credentials`] has its token.
//! - [`contexts`] are the fleets that a user has named.

pub mod client;
pub mod contexts;
mod directory_record;
pub mod instance;
pub mod local_credentials;
pub mod private_file;
pub mod stream;
