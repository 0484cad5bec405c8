//! The bus: streams, the log, work queues, timers, bodies and trace context, over NATS.
//!
//! Services use [`Bus`] and the modules beside it; only `nats` uses async-nats. The package `bus-memory` has an
//! in-memory server for tests, and a test compares it with a real one.
//!
//! # Layout
//!
//! - `log` and `archive` read and write the commits of a session; `verify` settles writes whose outcome is not known.
//! - `work` is the loop of a worker; `call` adds the checks before and during a model or tool call.
//! - `control`, `timer`, `events` and `rpc` send and receive what services say to each other.
//! - `nats` is the connection to nats-server, and `transport` the trait that it and `bus-memory` implement.

pub mod archive;
mod archived_page;
pub mod body;
mod bus;
pub mod call;
pub mod control;
pub mod dead;
pub mod error;
pub mod events;
mod headers;
mod json;
pub mod kv;
pub mod log;
pub mod mail;
pub mod nats;
pub mod replica;
mod retry;
pub mod rpc;
mod seq_cache;
mod slots;
mod summary;
pub mod timer;
mod transcript_parts;
pub mod transport;
pub mod two_histories;
mod verify;
pub mod work;
mod written;

pub use self::bus::Bus;
pub use call::CallStatus;
pub use control::{Inbox, SendOutcome};
pub use dead::DeadLetter;
pub use error::BusError;
pub use kv::{Claim, SummaryChange};
pub use log::{Committed, Head, Offer};
pub use mail::{Mailbox, PostOutcome};
pub use nats::NatsConfig;
pub use rpc::{CallNote, RpcServer};
pub use transport::{
    CoreMessage, Delivery, Depth, Doubt, DriftPolicy, Headers, Read, Storage, StorageSize, Stored, StreamRewind,
    Subscription, SubscriptionEvent, Transport,
};
pub use work::{Handler, Hold, Settle, Worker};
