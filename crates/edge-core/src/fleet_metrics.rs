//! Measures the queues and the sessions for the metrics: a queue whose workers are all gone has no other process that
//! could.

use std::sync::Arc;
use std::time::Duration;

use bus::transport::QueueState;
use contract::streams::Queue;
use futures::future::join_all;
use session_api::SessionNumbers;
use telemetry::metric::{self, QueueLevel};

use crate::cells::{Cell, Cells};
use crate::clock;

/// Pause between two measurements.
const MEASURE_EVERY: Duration = Duration::from_secs(5);

/// Measures until the task ends. The numbers are those of all cells together.
pub(crate) async fn follow(cells: Cells) {
    loop {
        for queue in Queue::ALL {
            if let Some(level) = measure(&cells, *queue).await {
                metric::queue(queue.durable(), level);
            }
        }
        let counts = cells.opened().filter_map(|cell| cell.tenants.count_sessions());
        if let Some(counts) = counts.reduce(SessionNumbers::plus) {
            let SessionNumbers { idle, running, paused, ended, with_gates } = counts;
            for (name, count) in [("idle", idle), ("running", running), ("paused", paused), ("ended", ended)] {
                metric::sessions(name, count);
            }
            metric::sessions_with_gates(with_gates);
        }
        tokio::time::sleep(MEASURE_EVERY).await;
    }
}

/// Measures a queue in each cell that can be reached; `None` if it was measured in none.
async fn measure(cells: &Cells, queue: Queue) -> Option<QueueLevel> {
    let measure = |cell: &Arc<Cell>| {
        let cell = cell.clone();
        async move {
            let state = cell.bus.transport().queue_state(queue).await;
            state.map_err(|error| tracing::debug!(queue = queue.durable(), %error, "the queue was not measured")).ok()
        }
    };
    let states = join_all(cells.reached().map(measure)).await;
    states.into_iter().flatten().map(level).reduce(|one, other| QueueLevel {
        waiting: one.waiting + other.waiting,
        held: one.held + other.held,
        oldest: one.oldest.max(other.oldest),
        pullers: one.pullers + other.pullers,
    })
}

fn level(state: QueueState) -> QueueLevel {
    let QueueState { depth, pullers, oldest } = state;
    let oldest = oldest.map_or(0.0, |at| clock::now().since(at).as_secs_f64());
    QueueLevel { waiting: depth.waiting, held: depth.held, oldest, pullers }
}
