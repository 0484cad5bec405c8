//! Runs tool calls, and keeps the catalogue of tools.

mod call;
mod catalogue;
mod connection_health;
mod operator_requests;
mod schemas;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bus::Bus;
use bus::call::CallWorker;
use contract::streams::Queue;
use contract::{TenantId, ToolName};
use schemars::JsonSchema;
use serde::Deserialize;
use service::health::Readiness;
use service::process::Running;
use service::tasks::Tasks;

use call::ToolCallHandler;
use connection_health::ConnectionHealth;
use operator_requests::OperatorRequests;
use schemas::Schemas;
pub use service::clock::{Clock, SystemClock};

/// The `executor` section of the configuration.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "executor")]
pub struct ExecutorConfig {
    /// Tool calls that run in this process at the same time.
    pub concurrency: usize,
    /// Tools that must be in the catalogue before this process is ready: those that the same process serves.
    #[serde(skip)]
    pub expected: BTreeSet<(TenantId, ToolName)>,
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        Self { concurrency: 64, expected: BTreeSet::new() }
    }
}

/// Runs the service until SIGTERM or SIGINT.
pub async fn run() -> anyhow::Result<()> {
    service::process::run("tool-executor", "executor", async |config: ExecutorConfig, bus| {
        let started = Executor::start(config, bus);
        Ok(Running::new(started.readiness(), |timeout| started.drain(timeout)))
    })
    .await
}

/// A running executor: the worker of the tool queue, and the catalogue.
#[derive(Debug)]
pub struct Executor {
    worker: CallWorker,
    tasks: Tasks,
    readiness: Readiness,
}

impl Executor {
    /// Starts the worker of the tool queue and the catalogue.
    pub fn start(config: ExecutorConfig, bus: Bus) -> Self {
        Self::with_clock(config, bus, Arc::new(SystemClock))
    }

    /// As [`Executor::start`], with a clock of the caller's.
    pub fn with_clock(config: ExecutorConfig, bus: Bus, clock: Arc<dyn Clock>) -> Self {
        let (schemas, health) = (Schemas::default(), ConnectionHealth::default());
        let (tasks, readiness) = (Tasks::new(), Readiness::new("executor"));
        let (known, ending, ready) = (schemas.clone(), tasks.token(), readiness.clone());
        tasks.spawn("catalogue", catalogue::run(bus.clone(), known, health.clone(), config.expected, ending, ready));
        let requests = OperatorRequests { bus: bus.clone(), clock: clock.clone(), schemas: schemas.clone() };
        tasks.spawn("requests of operators", requests.run(tasks.token()));
        let calls = ToolCallHandler::new(bus.clone(), clock, schemas, health);
        let worker = CallWorker::start(bus, Queue::Tool, config.concurrency, calls);
        Self { worker, tasks, readiness }
    }

    /// Ready when the catalogue has been written once.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Takes no more calls, waits up to `timeout` for the running ones, and hands the others back.
    pub async fn drain(self, timeout: Duration) {
        self.readiness.set(false);
        self.worker.drain(timeout).await;
        self.tasks.end(timeout).await;
    }
}
