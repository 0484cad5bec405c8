//! Depth of the queues of the fleet.

use std::sync::Arc;

use contract::streams::Queue;
use session_api::{QueueDepth, QueueList};

use super::SessionApi;
use crate::access::ApiCaller;
use crate::admission::AdmissionLimits;
use crate::api_error::ApiError;
use crate::cells::{Cell, CellAnswers};
use crate::fair_queue::RequestCost;

impl SessionApi {
    /// Returns the depth of each queue of the fleet.
    pub async fn get_queues(&self, caller: &ApiCaller) -> Result<QueueList, ApiError> {
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        let measure = |cell: Arc<Cell>| async move {
            let mut depths = Vec::new();
            for queue in Queue::ALL {
                depths.push(cell.bus.transport().depth(*queue).await?);
            }
            Ok((depths, cell.tenant(&caller.tenant).admission.limits()))
        };
        let CellAnswers { answers, missing } = self.cells().ask_all(&caller.tenant, measure).await?;
        let empty = |queue: &Queue| QueueDepth { queue: queue.durable(), waiting: 0, held: 0 };
        let mut queues: Vec<QueueDepth> = Queue::ALL.iter().map(empty).collect();
        let (mut all, mut tenant) = (0, 0);
        // Each cell has these limits.
        for (_, (depths, limits)) in answers {
            for (queue, depth) in queues.iter_mut().zip(depths) {
                queue.waiting += depth.waiting;
                queue.held += depth.held;
            }
            let AdmissionLimits { all: all_of_cell, tenant: of_tenant, .. } = limits;
            (all, tenant) = (all + all_of_cell, tenant + of_tenant);
        }
        Ok(QueueList { queues, waiting_calls_max: all, tenant_waiting_calls_max: tenant, missing_cells: missing })
    }
}
