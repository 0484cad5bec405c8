//! The connection that services use.

use std::sync::Arc;

use crate::nats::NatsTransport;
use crate::seq_cache::SeqCache;
use crate::{BusError, DriftPolicy, NatsConfig, Transport};

/// A connection to the bus; cheap to clone.
#[derive(Clone)]
pub struct Bus {
    transport: Arc<dyn Transport>,
    pub(crate) seq_cache: Arc<SeqCache>,
}

impl Bus {
    /// A bus over any transport.
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, seq_cache: Arc::default() }
    }

    /// Connects to NATS; [`BusError::Unusable`] where the server is missing, too old or has no JetStream.
    pub async fn connect(config: &NatsConfig) -> Result<Self, BusError> {
        Ok(Self::new(Arc::new(NatsTransport::connect(config).await?)))
    }

    /// The transport itself, for operations that [`Bus`] does not have.
    pub fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    /// Verifies every stream, consumer, bucket and store, and waits a while for missing ones. It only reads:
    /// services have no permission to create what [`Bus::ensure`] creates.
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

    /// Makes a round trip to the server.
    pub async fn ping(&self) -> Result<(), BusError> {
        self.transport.ping().await
    }

    /// Sends the queued messages and closes the connection.
    pub async fn close(&self) {
        self.transport.close().await;
    }
}

impl std::fmt::Debug for Bus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bus")
    }
}
