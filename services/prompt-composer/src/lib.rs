//! The prompt-composer resolves agents and models, and composes system prompts from tested parts.
//!
//! It reads files, asks gateways for a default model where the files have none, and writes nothing. So any number of
//! replicas share the requests on `ai_rpc.prompt.compose` and `ai_rpc.prompt.agents`.

pub mod agents;
mod catalog;
pub mod compose;
mod config;
mod explain;
pub mod features;
pub mod library;
mod placeholders;
mod proposed_model;

use std::time::{Duration, Instant};

use bus::{Bus, BusError, RpcServer};
use configuration::ConfigError;
use service::health::Readiness;
use service::process::Running;
use service::tasks::Tasks;

pub use catalog::Catalog;
pub use config::{ComposerConfig, SECTION};
pub use explain::{ExplainedSetting, Explanation};

/// Longest wait for the task that reads files, when the composer stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Reason why a composer cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ComposerStartError {
    /// The configuration has an error.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The bus refused the subscriptions.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// Runs the service until SIGTERM or SIGINT.
pub async fn run() -> anyhow::Result<()> {
    service::process::run("prompt-composer", SECTION, async |config: ComposerConfig, bus| {
        let started = Composer::start(config.watch_config_file()?, bus).await?;
        Ok(Running::new(started.readiness(), |timeout| started.drain(timeout)))
    })
    .await
}

/// A running replica of the prompt-composer.
#[derive(Debug)]
pub struct Composer {
    readiness: Readiness,
    serving: [RpcServer; 2],
    tasks: Tasks,
}

impl Composer {
    /// Reads agents, models and prompts, follows their changes, and serves requests.
    pub async fn start(config: ComposerConfig, bus: Bus) -> Result<Self, ComposerStartError> {
        let (readiness, tasks) = (Readiness::new(SECTION), Tasks::new());
        let catalog = Catalog::watch(config, readiness.clone())?;
        tasks.spawn("files", catalog.clone().follow(tasks.token()));
        let proposed = catalog.get().proposed_model().clone();
        let followed = catalog.clone();
        let is_needed = move || !followed.get().has_default_model();
        if is_needed() {
            // Before the first request, so that it finds a model.
            proposed.refresh(&bus).await;
        }
        tasks.spawn("model proposal", proposed.follow(bus.clone(), is_needed, tasks.token()));
        let marked = catalog.clone();
        bus.describe_with(move |status| status.configuration = Some(marked.get().mark()));
        let for_agents = catalog.clone();
        let agents = bus.serve_agents(move |_| for_agents.get().list_known()).await?;
        let compose = bus
            .serve_compose_bytes(move |request| {
                let began = Instant::now();
                let trace = request.header(contract::tool::header::TRACEPARENT).and_then(|text| text.parse().ok());
                let reply = catalog.get().compose_bytes(&request.payload, trace);
                telemetry::metric::compose_duration(began.elapsed());
                reply
            })
            .await?;
        readiness.set(true);
        Ok(Self { readiness, serving: [compose, agents], tasks })
    }

    /// Reports whether this replica serves requests.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Stops serving requests. A reply takes too little time to wait for running ones.
    pub async fn drain(self, _timeout: Duration) {
        self.readiness.set(false);
        drop(self.serving);
        self.tasks.end(DRAIN_TIMEOUT).await;
    }
}
