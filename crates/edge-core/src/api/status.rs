//! The processes of the fleet, its queues and its sessions: what an operator looks at first.

use std::sync::Arc;
use std::time::Duration;

use bus::transport::QueueState;
use bus::{Bus, Storage, StorageSize};
use contract::streams::{Objects, Queue, Stream};
use contract::{TenantId, Timestamp, subject};
use session_api::{FleetStatus, QueueStatus, ReplicaInfo, StorageStatus};

use super::SessionApi;
use crate::access::ApiCaller;
use crate::api_error::ApiError;
use crate::cells::{Cell, CellAnswers, missing_error};
use crate::clock;
use crate::fair_queue::RequestCost;

impl SessionApi {
    /// Asks every process of the fleet, and measures queues and streams.
    pub async fn get_status(&self, caller: &ApiCaller) -> Result<FleetStatus, ApiError> {
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
    Ok(to_status(queue, state, clock::now()))
}

fn to_status(queue: Queue, state: QueueState, now: Timestamp) -> QueueStatus {
    let QueueState { depth, pullers, oldest } = state;
    let oldest_ms = oldest.map(|at| milliseconds(now.since(at)));
    QueueStatus { queue: queue.durable(), waiting: depth.waiting, held: depth.held, pullers, oldest_ms }
}

/// Asks the processes of one cell, and measures its queues and streams.
async fn cell_status(cell: &Cell, tenant: &TenantId) -> Result<FleetStatus, ApiError> {
    let transport = cell.bus.transport();
    let now = transport.server_time().await?;
    let replicas = cell.bus.replicas().await?.into_iter();
    let replicas = replicas.map(|status| ReplicaInfo { clock_ahead_ms: ahead_ms(status.now, now), cell: None, status });
    let mut queues = Vec::new();
    for queue in Queue::ALL {
        queues.push(to_status(*queue, transport.queue_state(*queue).await?, now));
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
