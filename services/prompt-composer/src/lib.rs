//! The prompt-composer resolves agents and models, and composes system prompts from tested parts.
//!
//! It only reads files and writes nothing, so any number of replicas share the requests on `ai_rpc.prompt.compose` and
//! `ai_rpc.prompt.agents`.

pub mod agents;
mod catalog;
pub mod compose;
pub mod features;
pub mod library;
mod placeholders;
pub mod reply_cache;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bus::{Bus, BusError, RpcServer};
use schemars::JsonSchema;
use serde::Deserialize;
use service::config::{ConfigError, Settings};
use service::files::Pass;
use service::health::Readiness;
use service::paths::Paths;
use service::process::Running;
use service::tasks::Tasks;

pub use catalog::Catalog;

/// Name of the section of `ailoop.yaml`.
pub const SECTION: &str = "composer";
/// Longest wait for the task that reads files, when the composer stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The `composer` section of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "composer")]
pub struct ComposerConfig {
    /// The model of agents that name none, in place of the one in `models.yaml`.
    pub default_model: Option<String>,
    /// Features of all agents.
    pub features: Vec<String>,
    /// Where `agents.yaml` and `models.yaml` are; where `ailoop.yaml` is found when absent.
    pub config_dir: Option<PathBuf>,
    /// Prompts that go before those of the project and those that are shipped.
    pub prompts_dir: Option<PathBuf>,
    /// Directory of the `ailoop.yaml` whose changes of `features` are followed. `None` if the caller built the configuration.
    #[serde(skip)]
    pub watched_config_dir: Option<PathBuf>,
}

impl Default for ComposerConfig {
    fn default() -> Self {
        Self {
            default_model: None,
            features: vec![features::CONTINUATION.to_owned()],
            config_dir: None,
            prompts_dir: None,
            watched_config_dir: None,
        }
    }
}

impl ComposerConfig {
    /// Returns this configuration with the `ailoop.yaml` that it came from, whose changes are then followed.
    pub fn watch_config_file(self) -> Result<Self, ConfigError> {
        Ok(Self { watched_config_dir: Paths::find(None)?.config, ..self })
    }

    /// Reads the features of all agents from the file again.
    fn read_features(&self, pass: &Pass) -> Result<Vec<String>, ConfigError> {
        let Some(dir) = &self.watched_config_dir else { return Ok(self.features.clone()) };
        let settings = Settings::of(Paths::find_in(pass, Some(dir))?)?;
        Ok(settings.section::<Self>(SECTION)?.features)
    }
}

/// Why a composer cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration has an error.
    #[error(transparent)]
    ComposerConfig(#[from] ConfigError),
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
    pub async fn start(config: ComposerConfig, bus: Bus) -> Result<Self, StartError> {
        let (readiness, tasks) = (Readiness::new(SECTION), Tasks::new());
        let catalog = Catalog::watch(config, readiness.clone())?;
        tasks.spawn("files", catalog.clone().follow(tasks.token()));
        let for_agents = catalog.clone();
        let agents = bus.serve_agents(move |_| for_agents.get().list_known()).await?;
        let compose = bus
            .serve_compose_bytes(move |request| {
                let began = Instant::now();
                let traceparent = request.header(contract::tool::header::TRACEPARENT);
                let reply = catalog.get().compose_bytes(&request.payload, traceparent);
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
