//! Measures the queues and the sessions for the metrics: a queue whose workers are all gone has no other process that
//! could.

use std::sync::Arc;
use std::time::Duration;

use bus::Bus;
use bus::transport::QueueState;
use contract::commit::Phase;
use contract::streams::Queue;
use telemetry::metric::{self, QueueLevel};

use crate::clock;
use crate::tenants::Tenants;

/// Pause between two measurements.
const MEASURE_EVERY: Duration = Duration::from_secs(5);

/// Measures until the task ends.
pub(crate) async fn follow(bus: Bus, tenants: Arc<Tenants>) {
    loop {
        for queue in Queue::ALL {
            match bus.transport().queue_state(*queue).await {
                Ok(state) => metric::queue(queue.durable(), level(state)),
                Err(error) => tracing::debug!(queue = queue.durable(), %error, "the queue was not measured"),
            }
        }
        if let Some(counts) = tenants.count_sessions() {
            for (phase, name) in
                [(Phase::Idle, "idle"), (Phase::Running, "running"), (Phase::Paused, "paused"), (Phase::Ended, "ended")]
            {
                metric::sessions(name, counts.by_phase.get(&phase).copied().unwrap_or(0));
            }
            metric::sessions_with_gates(counts.with_gates);
        }
        tokio::time::sleep(MEASURE_EVERY).await;
    }
}

fn level(state: QueueState) -> QueueLevel {
    let QueueState { depth, pullers, oldest } = state;
    let oldest = oldest.map_or(0.0, |at| clock::now().since(at).as_secs_f64());
    QueueLevel { waiting: depth.waiting, held: depth.held, oldest, pullers }
}
