//! Makes what nats-server needs to know who may do what: an operator, a system account, the account of the fleet, and a
//! credential for each user.
//!
//! [`Authority`] signs; it reads no clock and does no IO. [`Store`] keeps its keys and what it signed, in a directory or
//! in Kubernetes Secrets. [`SystemConnection`] hands a signed account to the servers that run.

mod authority;
mod claims;
mod error;
mod installation;
mod jwt;
mod keys;
mod revocation;
mod server_files;
mod store;
mod system;

pub use authority::{Authority, IssuedUser, Lifetime};
pub use claims::{AccountClaims, SigningKey, UserScope};
pub use error::AuthError;
pub use installation::{Installation, ServerLayout};
pub use jwt::{Claims, decode};
pub use keys::Keys;
pub use revocation::Revocation;
pub use server_files::{AUTH_FILE, ROUTES_FILE, ServerFiles};
pub use store::{Group, Manifests, Store, secret_manifest};
pub use system::{ConnectedUser, ServerAccount, SystemConnection};
