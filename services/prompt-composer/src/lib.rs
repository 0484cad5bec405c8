//! The prompt-composer: resolves agents and models, and composes system prompts out of tested parts.
//!
//! It holds no state and writes nothing: any number of replicas share the requests on `ai_rpc.prompt.compose` and
//! `ai_rpc.prompt.agents`.

pub mod agents;
pub mod compose;
mod composer;
pub mod features;
pub mod library;
mod substitute;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::{Bus, BusError, Serving};
use serde::Deserialize;
use service::config::ConfigError;
use service::health::Readiness;

pub use composer::Book;

/// The `composer` section of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The model of agents that name none, in place of the one in `models.yaml`.
    pub default_model: Option<String>,
    /// Features of all agents.
    pub features: Vec<String>,
    /// Where `agents.yaml` and `models.yaml` are; where `ailoop.yaml` is found when absent.
    pub config_dir: Option<PathBuf>,
    /// Prompts that go before those of the project and those that are shipped.
    pub prompts_dir: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            default_model: None,
            features: vec![features::CONTINUATION.to_owned()],
            config_dir: None,
            prompts_dir: None,
        }
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
}

impl Composer {
    /// Reads agents, models and prompts, and answers from then on.
    pub async fn start(config: Config, bus: Bus) -> Result<Self, StartError> {
        let book = Arc::new(Book::read(&config)?);
        let known = book.clone();
        let agents = bus.serve_agents(move |_| known.known()).await?;
        let compose = bus
            .serve_compose(move |request| {
                let began = Instant::now();
                let reply = book.answer(&request);
                telemetry::metric::compose_duration(began.elapsed());
                Box::pin(std::future::ready(reply))
            })
            .await?;
        let readiness = Readiness::new("composer");
        readiness.set(true);
        Ok(Self { readiness, serving: [compose, agents] })
    }

    /// Whether it answers.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Stops answering. An answer takes no time, so there is nothing to wait for.
    pub async fn drain(self, _timeout: Duration) {
        self.readiness.set(false);
        drop(self.serving);
        std::future::ready(()).await;
    }
}
