//! The providers of `models.yaml`, ready to be called.

use std::collections::BTreeMap;
use std::path::Path;

use contract::model::{FailureKind, ModelItem};
use service::ConfigError;
use service::models::{self, ModelsFile, ProviderKind, Resolved};
use service::paths::{Paths, TextFile};
use tokio::sync::mpsc;

use crate::failure::Failure;
use crate::openai::client::Client;
use crate::reply::Delta;
use crate::scripted::{Player, Script};
use service::clock::Clock;

/// One call, as an adapter sees it.
#[derive(Debug)]
pub struct Request<'a> {
    /// What the loop asks.
    pub item: &'a ModelItem,
    /// The model in the provider's words.
    pub upstream: &'a str,
    /// The trace that the call belongs to.
    pub traceparent: Option<String>,
}

/// A provider, by how it is spoken to.
#[derive(Debug)]
pub enum Provider {
    /// Chat completions over HTTP.
    OpenaiChat(Client),
    /// A script.
    Scripted(Player),
}

impl Provider {
    /// Streams one reply into `deltas`; `Ok` only when it is complete. Dropping the future ends the call.
    pub async fn call(
        &self,
        request: &Request<'_>,
        deltas: &mpsc::Sender<Vec<Delta>>,
        clock: &dyn Clock,
    ) -> Result<(), Failure> {
        match self {
            Self::OpenaiChat(client) => client.call(request, deltas, clock).await,
            Self::Scripted(player) => player.play(request.item, deltas).await,
        }
    }
}

/// Every provider by its name, and which model is whose.
#[derive(Debug)]
pub struct Providers {
    models: ModelsFile,
    by_name: BTreeMap<String, Provider>,
}

impl Providers {
    /// Reads `models.yaml` and the scripts that it names, of `dir` or of where [`Paths::find`] looks.
    pub fn read(dir: Option<&Path>) -> Result<Self, ConfigError> {
        let paths = Paths::find(dir)?;
        Self::new(models::load(&paths)?, &paths)
    }

    /// The providers of a models file; scripts are read below `paths`.
    pub fn new(models: ModelsFile, paths: &Paths) -> Result<Self, ConfigError> {
        let mut by_name = BTreeMap::new();
        for (name, entry) in &models.providers {
            let provider = match entry.kind {
                ProviderKind::OpenaiChat => Provider::OpenaiChat(Client::new(entry.clone())),
                ProviderKind::Scripted => {
                    let file = paths.read(entry.script.as_deref().unwrap_or_default())?;
                    Provider::Scripted(Player::new(Script::parse(&file)?))
                }
            };
            by_name.insert(name.clone(), provider);
        }
        Ok(Self { models, by_name })
    }

    /// The providers of a models file, each of them playing this script.
    pub fn scripted(models: ModelsFile, script: &TextFile) -> Result<Self, ConfigError> {
        let mut by_name = BTreeMap::new();
        for name in models.providers.keys() {
            by_name.insert(name.clone(), Provider::Scripted(Player::new(Script::parse(script)?)));
        }
        Ok(Self { models, by_name })
    }

    /// Finds a model and who serves it; an unknown one is the request's mistake.
    pub fn resolve(&self, model: &str) -> Result<(Resolved, &Provider), Failure> {
        let bad = |message: String| Failure::new(FailureKind::BadRequest, message);
        let resolved = self.models.resolve(model).map_err(|unknown| bad(unknown.to_string()))?;
        let provider = self.by_name.get(&resolved.provider);
        provider.map(|provider| (resolved, provider)).ok_or_else(|| bad(format!("no provider for {model:?}")))
    }
}
