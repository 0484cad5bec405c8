//! Runs tool calls, and keeps the catalogue of tools.

mod call;
mod catalogue;
mod schema;
mod serve;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use bus::call::CallWorker;
use bus::{Bus, NatsConfig};
use contract::streams::Queue;
use schemars::JsonSchema;
use serde::Deserialize;
use service::health::Readiness;
use service::tasks::Tasks;

use call::Calls;
use schema::Schemas;
use serve::Served;
use serve::mail::PostOffice;
pub use serve::{
    FilesConfig, Login, MailConfig, McpConfig, PlansConfig, ResultsConfig, ServeConfig, ServeError, ServerName,
    SessionsConfig, command, fetch, mail, webhook,
};
pub use service::clock::{Clock, SystemClock};
use trouble::Trouble;

/// What the model is told of a call that may have taken effect, behind the reason.
const NOBODY_KNOWS: &str = "nobody knows whether it took effect. Find out before calling again.";

/// What an executor makes of a tool's description and schema: for whoever looks at tools without being one.
pub mod judge {
    pub use crate::catalogue::describe::{Described, read};
    pub use crate::schema::Schema;
}

/// The `executor` section of the configuration.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "executor")]
pub struct Config {
    /// Tool calls that run in this process at the same time.
    pub concurrency: usize,
    /// The tools that this process serves itself.
    pub serve: ServeConfig,
    /// How those reach NATS: the process's `nats` section, since tools have connections of their own.
    #[serde(skip)]
    pub nats: NatsConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self { concurrency: 64, serve: ServeConfig::default(), nats: NatsConfig::default() }
    }
}

/// A running executor.
#[derive(Debug)]
pub struct Executor {
    worker: CallWorker,
    tasks: Tasks,
    served: Served,
    readiness: Readiness,
}

impl Executor {
    /// Starts taking calls and keeping the catalogue. It fails only where tools of its own are wanted and cannot be.
    pub async fn start(config: Config, bus: Bus) -> Result<Self, ServeError> {
        Self::with_clock(config, bus, Arc::new(SystemClock)).await
    }

    /// As [`Executor::start`], with a clock of the caller's.
    pub async fn with_clock(config: Config, bus: Bus, clock: Arc<dyn Clock>) -> Result<Self, ServeError> {
        let office = PostOffice::new(bus.clone(), config.serve.tenant.clone(), clock.clone());
        let (schemas, trouble) = (Schemas::default(), Trouble::default());
        let served = Served::start(&config.serve, &config.nats, &bus, office, &schemas).await?;
        let (tasks, readiness) = (Tasks::new(), Readiness::new("executor"));
        let (known, ending, ready) = (schemas.clone(), tasks.token(), readiness.clone());
        tasks.spawn("catalogue", catalogue::run(bus.clone(), known, trouble.clone(), served.names(), ending, ready));
        let calls = Calls::new(bus.clone(), clock, schemas, trouble);
        let worker = CallWorker::start(bus, Queue::Tool, config.concurrency, calls);
        Ok(Self { worker, tasks, served, readiness })
    }

    /// Ready when the catalogue has been written once.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Takes no more calls, lets those that run end for up to `timeout`, and hands the others back.
    pub async fn drain(self, timeout: Duration) {
        self.readiness.set(false);
        self.worker.drain(timeout).await;
        self.served.stop(timeout).await;
        self.tasks.end(timeout).await;
    }
}
