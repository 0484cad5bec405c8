//! Runs model calls: provider protocols, streaming, retries, rates and budgets.
//!
//! A call is a work item of a queue. A gateway starts a call only after it has seen in the log of the session that the
//! call is open. It publishes the reply to viewers while the reply grows, and reports the complete reply as one input
//! of the session.
//!
//! # Layout
//!
//! - `worker` takes calls from the queue; `call` and `job` run one of them up to its result.
//! - `provider` and `adapter` make requests in the protocol of a provider, and read its stream.
//! - `reply` and `reply_publisher` build the reply and publish it to viewers.
//! - `limits`, `budgets` and `breaker` decide whether a request may be sent; `retry` and `failure` what follows a failure.
//! - `scripted` plays replies from a script.

pub mod adapter;
mod breaker;
mod budgets;
mod call;
mod chunks;
pub mod failure;
mod http;
mod job;
mod limits;
mod mask;
mod observe;
pub mod probe;
mod proposal;
pub mod provider;
mod provider_request;
mod recording;
pub mod reply;
mod reply_publisher;
mod resolve;
mod result;
mod retry;
mod scripted;
mod sse;
pub mod transcript_parts;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bus::Bus;
use bus::call::CallWorker;
use contract::streams::Queue;
use schemars::JsonSchema;
use serde::Deserialize;
use service::health::Readiness;
use service::process::Running;
use service::reload::Reload;
use service::tasks::Tasks;

use breaker::Breakers;
pub use provider::Providers;
pub use service::clock::{Clock, SystemClock};

/// The `gateway` section of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "gateway")]
pub struct GatewayConfig {
    /// Calls that run at the same time; 64.
    pub concurrency: usize,
    /// Approximate bytes of transcripts that a replica keeps, so that it need not read them for each call; 64 MiB.
    pub transcript_cache_bytes: usize,
    /// Directory of `models.yaml`; where it is not set, that of `AILOOP_CONFIG`, else `./config`.
    pub config_dir: Option<PathBuf>,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self { concurrency: 64, transcript_cache_bytes: 64 << 20, config_dir: None }
    }
}

/// Runs the service until SIGTERM or SIGINT.
pub async fn run() -> anyhow::Result<()> {
    service::process::run("model-gateway", "gateway", async |config: GatewayConfig, bus| {
        let started = Gateway::start(config, bus).await?;
        Ok(Running::new(started.readiness(), |timeout| started.drain(timeout)))
    })
    .await
}

/// A replica that runs model calls.
#[derive(Debug)]
pub struct Gateway {
    worker: CallWorker,
    tasks: Tasks,
    readiness: Readiness,
}

impl Gateway {
    /// Reads the models and starts to take calls; it reloads files that change. A models file or script that is invalid
    /// is an error that names the place. A missing key is an error only of the calls that need it.
    #[allow(clippy::unused_async, reason = "every service starts the same way")]
    pub async fn start(config: GatewayConfig, bus: Bus) -> anyhow::Result<Self> {
        let readiness = Readiness::new("gateway");
        let providers = Providers::follow(config.config_dir.clone(), readiness.clone())?;
        Ok(Self::start_worker(&config, bus, providers, Arc::new(SystemClock), readiness))
    }

    /// Starts a gateway as [`Gateway::start`] does, with the providers and the clock of the caller.
    #[allow(clippy::unused_async, reason = "every service starts the same way")]
    pub async fn start_with(config: GatewayConfig, bus: Bus, providers: Providers, clock: Arc<dyn Clock>) -> Self {
        Self::start_worker(&config, bus, Reload::fixed("gateway", providers), clock, Readiness::new("gateway"))
    }

    fn start_worker(
        config: &GatewayConfig,
        bus: Bus,
        providers: Arc<Reload<Providers>>,
        clock: Arc<dyn Clock>,
        readiness: Readiness,
    ) -> Self {
        let tasks = Tasks::new();
        tasks.spawn("files", providers.clone().follow(tasks.token()));
        let budgets = budgets::Budgets { bus: bus.clone(), providers: providers.clone(), clock: clock.clone() };
        tasks.spawn("budgets of operators", budgets.run(tasks.token()));
        tasks.spawn("model proposal", proposal::serve(bus.clone(), providers.clone(), tasks.token()));
        let limits = limits::SharedLimits::start(&bus, &clock, &uuid::Uuid::now_v7().simple().to_string(), &tasks);
        let breakers = Breakers::default();
        let (failing, time) = (breakers.clone(), clock.clone());
        bus.describe_with(move |status| status.models = failing.failing(time.now()));
        let transcripts = transcript_parts::TranscriptParts::new(bus.clone(), config.transcript_cache_bytes);
        let handler = worker::ModelCallHandler { bus: bus.clone(), providers, clock, limits, breakers, transcripts };
        let worker = CallWorker::start(bus, Queue::Model, config.concurrency, handler);
        readiness.set(true);
        Self { worker, tasks, readiness }
    }

    /// Tells whether the gateway takes calls.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Stops taking calls, and lets running calls end for up to `timeout`. Then it drops the connections of the others
    /// and returns these calls to the queue.
    pub async fn drain(self, timeout: Duration) {
        self.readiness.set(false);
        self.worker.drain(timeout).await;
        self.tasks.end(Duration::from_secs(1)).await;
    }
}
