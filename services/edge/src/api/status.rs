//! The processes of the fleet, its queues and its sessions: what an operator looks at first.

use std::sync::Arc;
use std::time::Duration;

use bus::transport::QueueState;
use bus::{Bus, Storage, StorageSize};
use contract::fleet::ReplicaStatus;
use contract::streams::{Objects, Queue, Stream};
use contract::{CellName, TenantId, Timestamp, subject};
use serde::Serialize;

use super::SessionApi;
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::cells::{Cell, CellAnswers, missing_error};
use crate::clock;
use crate::fair_queue::RequestCost;
use crate::session_index::SessionCounts;

/// The answer to `fleet.status`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct FleetStatus {
    /// The time of the server's clock.
    pub(crate) now: Timestamp,
    /// Processes that answered, by service.
    pub(crate) replicas: Vec<ReplicaInfo>,
    pub(crate) queues: Vec<QueueStatus>,
    /// Sessions of the tenant; absent while the index is not in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sessions: Option<SessionCounts>,
    /// Dead letters of the tenant.
    pub(crate) dead_letters: u64,
    /// Streams and object stores of all tenants, on one replica.
    pub(crate) storage: Vec<StorageStatus>,
    /// Cells that did not answer, so that nothing of them is in the status.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing_cells: Vec<CellName>,
}

/// A process in the answer to `fleet.status`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ReplicaInfo {
    #[serde(flatten)]
    pub(crate) status: ReplicaStatus,
    /// Milliseconds by which its clock is ahead of the server's, to the accuracy of a request.
    pub(crate) clock_ahead_ms: i64,
    /// Its cell, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cell: Option<CellName>,
}

/// A queue in the answer to `fleet.status` and `session.describe`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct QueueStatus {
    /// `drive` (inputs), `due` (timers), `model` or `tool` (calls).
    pub(crate) queue: &'static str,
    pub(crate) waiting: u64,
    pub(crate) held: u64,
    /// Requests of workers for items; none where all workers are gone, or have no free place.
    pub(crate) pullers: u64,
    /// Age of the oldest item; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) oldest_ms: Option<u64>,
}

impl FleetStatus {
    /// The status of two cells together. The sessions are those of the cells whose index is in memory.
    fn plus(mut self, other: Self) -> Self {
        self.replicas.extend(other.replicas);
        for (queue, more) in self.queues.iter_mut().zip(&other.queues) {
            queue.waiting += more.waiting;
            queue.held += more.held;
            queue.pullers += more.pullers;
            queue.oldest_ms = queue.oldest_ms.max(more.oldest_ms);
        }
        self.sessions = match (self.sessions, other.sessions) {
            (Some(one), Some(other)) => Some(one.plus(other)),
            (one, other) => one.or(other),
        };
        self.dead_letters += other.dead_letters;
        for (stored, more) in self.storage.iter_mut().zip(&other.storage) {
            stored.messages += more.messages;
            stored.bytes += more.bytes;
        }
        self
    }
}

impl QueueStatus {
    pub(super) fn new(queue: Queue, state: QueueState, now: Timestamp) -> Self {
        let QueueState { depth, pullers, oldest } = state;
        let oldest_ms = oldest.map(|at| milliseconds(now.since(at)));
        Self { queue: queue.durable(), waiting: depth.waiting, held: depth.held, pullers, oldest_ms }
    }
}

/// A stream or an object store in the answer to `fleet.status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct StorageStatus {
    pub(crate) name: &'static str,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
}

impl SessionApi {
    /// Asks every process of the fleet, and measures queues and streams.
    pub(crate) async fn get_status(&self, caller: &ApiCaller) -> Result<FleetStatus, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Scan).await?;
        let status = |cell: Arc<Cell>| async move { cell_status(&cell, &caller.tenant).await };
        let CellAnswers { answers, missing } = self.cells().ask_all(&caller.tenant, status).await?;
        let are_several = self.cells().are_several();
        let mut statuses = answers.into_iter().map(|(name, mut status)| {
            if are_several {
                status.replicas.iter_mut().for_each(|replica| replica.cell = Some(name.clone()));
            }
            status
        });
        let first = statuses.next().ok_or_else(|| missing_error(&missing))?;
        Ok(FleetStatus { missing_cells: missing, ..statuses.fold(first, FleetStatus::plus) })
    }
}

pub(super) async fn queue_status(bus: &Bus, queue: Queue) -> Result<QueueStatus, ApiError> {
    let state = bus.transport().queue_state(queue).await?;
    Ok(QueueStatus::new(queue, state, clock::now()))
}

/// Asks the processes of one cell, and measures its queues and streams.
async fn cell_status(cell: &Cell, tenant: &TenantId) -> Result<FleetStatus, ApiError> {
    let transport = cell.bus.transport();
    let now = transport.server_time().await?;
    let replicas = cell.bus.replicas().await?.into_iter();
    let replicas = replicas.map(|status| ReplicaInfo { clock_ahead_ms: ahead_ms(status.now, now), cell: None, status });
    let mut queues = Vec::new();
    for queue in Queue::ALL {
        queues.push(QueueStatus::new(*queue, transport.queue_state(*queue).await?, now));
    }
    let mut storage = Vec::new();
    let streams = Stream::ALL.iter().map(|stream| (stream.name(), Storage::Stream(*stream)));
    for (name, what) in streams.chain(Objects::ALL.iter().map(|store| (store.name(), Storage::Objects(*store)))) {
        let StorageSize { messages, bytes } = transport.storage_size(what).await?;
        storage.push(StorageStatus { name, messages, bytes });
    }
    Ok(FleetStatus {
        now,
        replicas: replicas.collect(),
        queues,
        sessions: cell.tenant(tenant).index.counts(),
        dead_letters: transport.count(Stream::Dead, &subject::dead_of(tenant)).await?,
        storage,
        missing_cells: Vec::new(),
    })
}

/// Returns the milliseconds by which a clock is ahead of another one.
fn ahead_ms(clock: Timestamp, other: Timestamp) -> i64 {
    let ms = |time: Timestamp| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    ms(clock).saturating_sub(ms(other))
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
