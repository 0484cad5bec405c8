//! The worker: starts the loop that takes items, and drains it.

use std::sync::Arc;
use std::time::Duration;

use contract::streams::Queue;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::handler::Handler;
use super::run;
use crate::Bus;

/// Timeout of handing back the held items.
const HAND_BACK_MAX: Duration = Duration::from_secs(3);

/// Takes items of one queue until it is drained. Dropping it leaves what it holds to the ack wait.
#[derive(Debug)]
pub struct Worker {
    stop: CancellationToken,
    abort: CancellationToken,
    task: JoinSet<()>,
}

impl Worker {
    /// Starts taking items, at most `concurrency` at the same time. These permits are shared by tenant, and by tool,
    /// model or session: from five permits on none of them gets all, and an item beyond its share is delivered again
    /// later.
    pub fn start(bus: Bus, queue: Queue, concurrency: usize, handler: Arc<dyn Handler>) -> Self {
        let (stop, abort) = (CancellationToken::new(), CancellationToken::new());
        let mut task = JoinSet::new();
        task.spawn(run::run(bus, queue, concurrency.max(1), handler, stop.clone(), abort.clone()));
        Self { stop, abort, task }
    }

    /// Stops pulling, lets running handlers end for up to `timeout`, then ends them and hands their items back. Returns
    /// also while the bus is away.
    pub async fn drain(mut self, timeout: Duration) {
        self.stop.cancel();
        if tokio::time::timeout(timeout, self.task.join_next()).await.is_err() {
            self.abort.cancel();
            if tokio::time::timeout(HAND_BACK_MAX, self.task.join_next()).await.is_err() {
                tracing::warn!("items are not handed back: their ack wait has to pass");
            }
        }
    }
}
