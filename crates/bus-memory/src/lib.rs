//! The bus in memory, for tests and simulations: nothing that ships may depend on this package.
//!
//! It has the semantics of a nats-server, runs in tokio's time, and shows the faults of a replicated server on demand.
//! It is deterministic: the same operations give the same answers. A test compares it with a real nats-server.

mod client;
mod consumer;
mod core_nats;
mod faults;
mod lifecycle;
mod pull;
mod server;
mod store;
mod subscription;

pub use client::MemoryClient;
pub use faults::{Action, Fault, Faults, Operation};
pub use lifecycle::ClientLifecycle;
pub use server::{Backup, MemoryServer};
