//! Depth of the queues of the fleet.

use bus::Depth;
use contract::streams::Queue;
use serde::Serialize;

use super::SessionApi;
use crate::access::ApiCaller;
use crate::admission::AdmissionLimits;
use crate::api_error::ApiError;
use crate::fair_queue::RequestCost;

/// The answer to `fleet.queues`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct FleetQueues {
    pub(crate) queues: Vec<QueueDepth>,
    /// Number of waiting model calls at which new turns are refused.
    pub(crate) waiting_calls_max: u64,
    /// The same for the model calls of the caller's tenant.
    pub(crate) tenant_waiting_calls_max: u64,
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
        let mut queues = Vec::new();
        let _permit = self.acquire_permit(caller, RequestCost::Read).await?;
        for queue in Queue::ALL {
            let depth = self.bus().transport().depth(*queue).await?;
            queues.push(QueueDepth { queue: queue.durable(), depth });
        }
        let AdmissionLimits { all, tenant, .. } = self.tenant(caller).admission.limits();
        Ok(FleetQueues { queues, waiting_calls_max: all, tenant_waiting_calls_max: tenant })
    }
}
