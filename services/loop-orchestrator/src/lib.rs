//! Runs sessions: an input is loaded, decided, committed, performed and only then acknowledged.
//!
//! Any number of replicas work side by side. Nobody owns a session: a commit is a create-only write to the next slot,
//! and whoever loses it reloads and decides again.

mod adopt;
mod cache;
mod commit;
mod drive;
mod failures;
mod input;
mod perform;
mod repair;
mod share;
mod shell;
mod skew;

use std::sync::Arc;
use std::time::Duration;

use bus::Bus;
use bus::work::Worker;
use contract::limits::ARCHIVE_AFTER;
use contract::streams::Queue;
use schemars::JsonSchema;
use serde::Deserialize;
use service::health::Readiness;
use service::tasks::Tasks;

pub use self::adopt::{Adopted, adopt};
pub use service::clock::{Clock, SystemClock};

/// The `orchestrator` section of the configuration.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "orchestrator")]
pub struct Config {
    /// Inputs that are worked on at the same time.
    pub concurrency: usize,
    /// Sessions that are kept in memory.
    pub cached_sessions: usize,
    /// Bytes of memory for the sessions and the compiled patterns that are kept; what was used longest ago goes first.
    pub cache_bytes: usize,
    /// Seconds after its end in which a session leaves the log for the archive.
    pub archive_after: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            concurrency: 512,
            cached_sessions: 10_000,
            cache_bytes: 128 << 20,
            archive_after: ARCHIVE_AFTER.as_secs(),
        }
    }
}

/// A replica that runs sessions.
#[derive(Debug)]
pub struct Orchestrator {
    drive: Worker,
    due: Worker,
    tasks: Tasks,
    readiness: Readiness,
}

impl Orchestrator {
    /// Starts taking inputs and timers.
    pub async fn start(config: Config, bus: Bus) -> anyhow::Result<Self> {
        Self::with_clock(config, bus, Arc::new(SystemClock)).await
    }

    /// As [`Orchestrator::start`], with a clock of the caller's.
    #[allow(clippy::unused_async, reason = "every service starts the same way")]
    pub async fn with_clock(config: Config, bus: Bus, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        let readiness = Readiness::new("orchestrator");
        let shell = Arc::new(shell::Shell::new(bus.clone(), clock, &config));
        let drive =
            Worker::start(bus.clone(), Queue::Inputs, config.concurrency, Arc::new(drive::Drive::new(shell.clone())));
        let due = Worker::start(bus, Queue::Timers, config.concurrency, Arc::new(drive::Due(shell.clone())));
        let tasks = Tasks::new();
        tasks.spawn("repair requests", repair::serve(shell.clone(), tasks.token()));
        tasks.spawn("older store", repair::watch(shell, tasks.token()));
        readiness.set(true);
        Ok(Self { drive, due, tasks, readiness })
    }

    /// Whether it takes inputs.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Stops pulling, lets running commits end, hands back the rest.
    pub async fn drain(self, timeout: Duration) {
        self.readiness.set(false);
        futures::join!(self.drive.drain(timeout), self.due.drain(timeout), self.tasks.end(timeout));
    }
}
