//! Runs sessions. A replica loads the state for an input, decides, commits, performs the effects, and only then
//! acknowledges the input.
//!
//! Any number of replicas work side by side. No replica owns a session: a commit is a create-only write to the next
//! slot, and a replica that loses the slot reloads the state and decides again.

mod cache;
mod commit;
mod config;
mod failure_counts;
mod handle_error;
mod handler;
mod import;
mod input;
mod mark;
mod perform;
mod relocate;
mod repair;
mod repair_due;
mod result_batcher;
mod session_runner;
mod settlement;
mod skew;
mod start;
#[cfg(test)]
mod testing;
mod turn_trace;

use std::sync::Arc;
use std::time::Duration;

use bus::Bus;
use bus::work::Worker;
use contract::CommandId;
use contract::streams::Queue;
use service::health::Readiness;
use service::process::Running;
use service::tasks::Tasks;

pub use self::config::OrchestratorConfig;
pub use self::import::{ImportOutcome, import_session};
pub use self::relocate::{PointKind, PointOutcome, finish_import, point_session};
pub use service::clock::{Clock, SystemClock};

/// Runs the service until SIGTERM or SIGINT.
pub async fn run() -> anyhow::Result<()> {
    service::process::run("loop-orchestrator", "orchestrator", async |config: OrchestratorConfig, bus| {
        let started = Orchestrator::start(config, bus).await?;
        Ok(Running::new(started.readiness(), |timeout| started.drain(timeout)))
    })
    .await
}

/// A replica that runs sessions.
#[derive(Debug)]
pub struct Orchestrator {
    input_worker: Worker,
    timer_worker: Worker,
    tasks: Tasks,
    readiness: Readiness,
}

impl Orchestrator {
    /// Starts to consume inputs and timers.
    pub async fn start(config: OrchestratorConfig, bus: Bus) -> anyhow::Result<Self> {
        Self::with_clock(config, bus, Arc::new(SystemClock)).await
    }

    /// Like [`Orchestrator::start`], with the clock `clock`.
    #[allow(clippy::unused_async, reason = "every service starts the same way")]
    pub async fn with_clock(config: OrchestratorConfig, bus: Bus, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        let readiness = Readiness::new("orchestrator");
        let bus = bus.with_address(CommandId::new(&uuid::Uuid::new_v4().simple().to_string())?);
        let runner = Arc::new(session_runner::SessionRunner::new(bus.clone(), clock, &config));
        let input_worker = Worker::start(
            bus.clone(),
            Queue::Inputs,
            config.concurrency,
            Arc::new(handler::InputHandler::new(runner.clone())),
        );
        let timer_worker =
            Worker::start(bus, Queue::Timers, config.concurrency, Arc::new(handler::TimerHandler(runner.clone())));
        let tasks = Tasks::new();
        tasks.spawn("repair requests", repair::serve_requests(runner.clone(), tasks.token()));
        tasks.spawn("older store", repair::watch_rewinds(runner, tasks.token()));
        readiness.set(true);
        Ok(Self { input_worker, timer_worker, tasks, readiness })
    }

    /// Reports whether this replica consumes inputs.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Stops pulling, waits for running commits for at most `timeout`, and returns other inputs to the queue.
    pub async fn drain(self, timeout: Duration) {
        self.readiness.set(false);
        futures::join!(self.input_worker.drain(timeout), self.timer_worker.drain(timeout), self.tasks.end(timeout));
    }
}
