//! The connection that services use.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use contract::CommandId;
use contract::fleet::{ReplicaStatus, WorkerLoad};
use contract::streams::Queue;

use crate::nats::NatsTransport;
use crate::seq_cache::SeqCache;
use crate::written::{SetTimer, Written, WrittenLine};
use crate::{BusError, DriftPolicy, NatsConfig, Transport};

/// A connection to the bus; cheap to clone.
#[derive(Clone)]
pub struct Bus {
    transport: Arc<dyn Transport>,
    /// Address to which workers send the results of the calls that this connection publishes; none if no process serves
    /// it.
    pub(crate) address: Option<Arc<CommandId>>,
    pub(crate) seq_cache: Arc<SeqCache>,
    pub(crate) set_timers: Arc<Written<SetTimer>>,
    pub(crate) written_lines: Arc<Written<WrittenLine>>,
    /// Load of the workers of this connection, by queue.
    loads: Arc<Mutex<BTreeMap<&'static str, WorkerLoad>>>,
    /// Set by services after the connection is made; each lock is held for a copy only.
    describes: Arc<Mutex<Vec<Describe>>>,
}

/// Adds what a service knows to the status of its process.
type Describe = Arc<dyn Fn(&mut ReplicaStatus) + Send + Sync>;

impl Bus {
    /// A bus over any transport.
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self {
            transport,
            address: None,
            seq_cache: Arc::default(),
            set_timers: Arc::default(),
            written_lines: Arc::default(),
            loads: Arc::default(),
            describes: Arc::default(),
        }
    }

    /// Connects to NATS; [`BusError::Unusable`] where the server is missing, too old or has no JetStream.
    pub async fn connect(config: &NatsConfig) -> Result<Self, BusError> {
        Ok(Self::new(Arc::new(NatsTransport::connect(config).await?)))
    }

    /// The same connection with an address: the results of the calls that are published with it are sent there. The
    /// worker of inputs that is started with it takes them. No other process may have the address.
    #[must_use]
    pub fn with_address(self, address: CommandId) -> Self {
        Self { address: Some(Arc::new(address)), ..self }
    }

    /// The transport itself, for operations that [`Bus`] does not have.
    pub fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    /// Returns the load of the workers of this connection, by queue.
    pub fn loads(&self) -> BTreeMap<&'static str, WorkerLoad> {
        self.loads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets a service of this connection add to the status of its process, whenever the fleet is asked.
    pub fn describe_with(&self, describe: impl Fn(&mut ReplicaStatus) + Send + Sync + 'static) {
        self.describes.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(describe));
    }

    /// Adds what the services of this connection know.
    pub fn describe(&self, status: &mut ReplicaStatus) {
        let describes = self.describes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for describe in describes {
            describe(status);
        }
    }

    /// Notes how busy the worker of a queue is, and counts it in the metrics.
    pub(crate) fn note_load(&self, queue: Queue, running: usize, max: usize) {
        telemetry::metric::work(queue.durable(), running, max);
        let load = WorkerLoad { running: running as u64, max: max as u64 };
        self.loads.lock().unwrap_or_else(PoisonError::into_inner).insert(queue.durable(), load);
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
