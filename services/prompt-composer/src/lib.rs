//! The prompt-composer: resolves agents and models, and composes system prompts out of tested parts.
//!
//! It writes nothing, and what it holds it has read from files: any number of replicas share the requests on
//! `ai_rpc.prompt.compose` and `ai_rpc.prompt.agents`.

pub mod agents;
pub mod answers;
pub mod compose;
mod composer;
pub mod features;
pub mod library;
mod substitute;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bus::{Bus, BusError, Serving};
use schemars::JsonSchema;
use serde::Deserialize;
use service::config::{ConfigError, Settings};
use service::files::Pass;
use service::health::Readiness;
use service::paths::Paths;
use service::tasks::Tasks;

pub use composer::Book;

/// The section of `ailoop.yaml`.
pub const SECTION: &str = "composer";
/// How long the look at the files may still take at the end.
const END_MAX: Duration = Duration::from_secs(1);

/// The `composer` section of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "composer")]
pub struct Config {
    /// The model of agents that name none, in place of the one in `models.yaml`.
    pub default_model: Option<String>,
    /// Features of all agents.
    pub features: Vec<String>,
    /// Where `agents.yaml` and `models.yaml` are; where `ailoop.yaml` is found when absent.
    pub config_dir: Option<PathBuf>,
    /// Prompts that go before those of the project and those that are shipped.
    pub prompts_dir: Option<PathBuf>,
    /// Where `ailoop.yaml` is, when `features` is to follow it; not where the caller has made up the configuration.
    #[serde(skip)]
    pub follows: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            default_model: None,
            features: vec![features::CONTINUATION.to_owned()],
            config_dir: None,
            prompts_dir: None,
            follows: None,
        }
    }
}

impl Config {
    /// This configuration, which comes from `ailoop.yaml` and is to follow it.
    pub fn followed(self) -> Result<Self, ConfigError> {
        Ok(Self { follows: Paths::find(None)?.config, ..self })
    }

    /// Features of all agents, as the file has them now.
    fn features_now(&self, pass: &Pass) -> Result<Vec<String>, ConfigError> {
        let Some(dir) = &self.follows else { return Ok(self.features.clone()) };
        let settings = Settings::of(Paths::find_in(pass, Some(dir))?)?;
        Ok(settings.section::<Self>(SECTION)?.features)
    }
}

/// Why a composer does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Correct the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The bus cannot be used, or not now.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// A running prompt-composer.
#[derive(Debug)]
pub struct Composer {
    readiness: Readiness,
    serving: [Serving; 2],
    tasks: Tasks,
}

impl Composer {
    /// Reads agents, models and prompts, and answers from then on; changes of them are followed.
    pub async fn start(config: Config, bus: Bus) -> Result<Self, StartError> {
        let (readiness, tasks) = (Readiness::new(SECTION), Tasks::new());
        let book = Book::follow(config, readiness.clone())?;
        tasks.spawn("files", book.clone().follow(tasks.token()));
        let known = book.clone();
        let agents = bus.serve_agents(move |_| known.get().known()).await?;
        let compose = bus
            .serve_compose_bytes(move |request| {
                let began = Instant::now();
                let traceparent = request.header(contract::tool::header::TRACEPARENT);
                let reply = book.get().answer_bytes(&request.payload, traceparent);
                telemetry::metric::compose_duration(began.elapsed());
                reply
            })
            .await?;
        readiness.set(true);
        Ok(Self { readiness, serving: [compose, agents], tasks })
    }

    /// Whether it answers.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Stops answering. An answer takes no time, so there is nothing to wait for.
    pub async fn drain(self, _timeout: Duration) {
        self.readiness.set(false);
        drop(self.serving);
        self.tasks.end(END_MAX).await;
    }
}
