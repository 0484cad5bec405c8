//! Depth of the queues of the fleet.

use std::sync::Arc;

use bus::Depth;
use contract::CellName;
use contract::streams::Queue;
use serde::Serialize;

use super::SessionApi;
use crate::access::ApiCaller;
use crate::admission::AdmissionLimits;
use crate::api_error::ApiError;
use crate::cells::{Cell, CellAnswers};
use crate::fair_queue::RequestCost;

/// The answer to `fleet.queues`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct FleetQueues {
    pub(crate) queues: Vec<QueueDepth>,
    /// Number of waiting model calls at which new turns are refused.
    pub(crate) waiting_calls_max: u64,
    /// The same for the model calls of the caller's tenant.
    pub(crate) tenant_waiting_calls_max: u64,
    /// Cells that did not answer, so that their queues do not count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing_cells: Vec<CellName>,
}

/// A queue in the answer to `fleet.queues`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct QueueDepth {
    /// `drive` (inputs), `due` (timers), `model` or `tool` (calls).
    pub(crate) queue: &'static str,
    #[serde(flatten)]
    pub(crate) depth: Depth,
}

impl SessionApi {
    /// Returns the depth of each queue of the fleet.
    pub(crate) async fn get_queues(&self, caller: &ApiCaller) -> Result<FleetQueues, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let measure = |cell: Arc<Cell>| async move {
            let mut depths = Vec::new();
            for queue in Queue::ALL {
                depths.push(cell.bus.transport().depth(*queue).await?);
            }
            Ok((depths, cell.tenant(&caller.tenant).admission.limits()))
        };
        let CellAnswers { answers, missing } = self.cells().ask_all(&caller.tenant, measure).await?;
        let empty = |queue: &Queue| QueueDepth { queue: queue.durable(), depth: Depth::default() };
        let mut queues: Vec<QueueDepth> = Queue::ALL.iter().map(empty).collect();
        let (mut all, mut tenant) = (0, 0);
        // Each cell has these limits.
        for (_, (depths, limits)) in answers {
            for (queue, depth) in queues.iter_mut().zip(depths) {
                queue.depth.waiting += depth.waiting;
                queue.depth.held += depth.held;
            }
            let AdmissionLimits { all: all_of_cell, tenant: of_tenant, .. } = limits;
            (all, tenant) = (all + all_of_cell, tenant + of_tenant);
        }
        Ok(FleetQueues { queues, waiting_calls_max: all, tenant_waiting_calls_max: tenant, missing_cells: missing })
    }
}
