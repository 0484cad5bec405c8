//! Inputs of a connection to NATS: a credentials file with the JWT of a user and the seed of its key, an address with a
//! user and a password, and the files of an encrypted connection.
//!
//! [`CredentialsFile`] reads the file again at every connect, so that a credential is rotated without a restart: replace
//! the file, then revoke the old credential. Its errors name the file and what to do.

mod address;
mod claims;
mod file;
mod parse;
mod tls;

pub use address::{NatsAddress, hide_login};
pub use claims::UserClaims;
pub use file::{CredentialsError, CredentialsFile};
pub use parse::{Credentials, ParseError};
pub use tls::{TlsFiles, is_tls_failure};

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
