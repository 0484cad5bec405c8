//! The bus over a nats-server: the only module that uses async-nats.

mod api;
mod config;
mod connect;
mod connection;
mod core;
mod ensure;
mod erase;
mod header_map;
mod keys;
mod losses;
mod object_stores;
mod pull;
mod read;
mod refusal;
mod seen_seqs;
mod settings;
mod shared_inbox;
mod snapshot;
mod transport;

pub use config::{NatsConfig, NatsTls};
pub use connection::NatsTransport;
pub use snapshot::{
    CHUNK_BYTES, EncodedMessage, RESTORE_MARK, RestoreWriter, SnapshotReader, StreamDescription, StreamState,
};
