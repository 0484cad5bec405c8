//! The bus: streams, the log, work queues, timers, bodies and trace context, over NATS.
//!
//! Services use [`Bus`] and the modules beside it; only `nats` uses async-nats. The package `bus-memory` has an
//! in-memory server for tests, and a test compares it with a real one.

pub mod archive;
pub mod body;
pub mod call;
pub mod control;
pub mod dead;
pub mod error;
pub mod events;
pub mod kv;
pub mod log;
pub mod mail;
pub mod nats;
mod retry;
pub mod rpc;
mod seq_cache;
pub mod timer;
pub mod transport;
mod verify;
pub mod work;

use std::sync::Arc;

pub use call::CallStatus;
pub use control::{Inbox, Sent};
pub use dead::DeadLetter;
pub use error::BusError;
pub use kv::Claim;
pub use kv::SummaryChange;
pub use log::{Committed, Head, Offer};
pub use mail::{Mailbox, Posted};
pub use nats::NatsConfig;
pub use rpc::Serving;
pub use transport::{
    CoreMessage, Delivery, Depth, Doubt, DriftPolicy, Headers, Read, Rewound, Storage, StorageSize, Stored,
    Subscription, SubscriptionEvent, Transport,
};
pub use work::{Handler, Settle, Worker};

use self::seq_cache::SeqCache;

/// A connection to the bus; cheap to clone.
#[derive(Clone)]
pub struct Bus {
    transport: Arc<dyn Transport>,
    seq_cache: Arc<SeqCache>,
}

impl Bus {
    /// A bus over any transport.
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, seq_cache: Arc::default() }
    }

    /// Connects to NATS; [`BusError::Unusable`] where the server is missing, too old or has no JetStream.
    pub async fn connect(config: &NatsConfig) -> Result<Self, BusError> {
        Ok(Self::new(Arc::new(nats::Nats::connect(config).await?)))
    }

    /// The transport itself, for what this crate has no word for.
    pub fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    /// Verifies every stream, consumer, bucket and store, and waits a while for those that somebody makes just now. It
    /// reads only: services have no permission to make what [`Bus::ensure`] makes.
    pub async fn verify(&self) -> Result<(), BusError> {
        self.transport.ensure(DriftPolicy::Verify).await
    }

    /// Creates or verifies every stream, consumer, bucket and store; drift is an error that names the setting.
    pub async fn ensure(&self) -> Result<(), BusError> {
        self.transport.ensure(DriftPolicy::Refuse).await
    }

    /// As [`Bus::ensure`], but changes settings that drifted, where the server lets it.
    pub async fn repair(&self) -> Result<(), BusError> {
        self.transport.ensure(DriftPolicy::Repair).await
    }

    /// Whether the server answers.
    pub async fn ping(&self) -> Result<(), BusError> {
        self.transport.ping().await
    }

    /// Sends what is queued and closes.
    pub async fn close(&self) {
        self.transport.close().await;
    }
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bus")
    }
}
