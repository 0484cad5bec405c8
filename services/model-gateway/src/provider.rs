//! The providers of `models.yaml`, ready to be called.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use contract::TenantId;
use contract::model::{FailureKind, ModelItem};
use contract::settings::ModelSettings;
use serde_json::{Map, Value};
use service::ConfigError;
use service::health::Readiness;
use service::models::{self, Alternative, Budget, ModelsFile, Prices, Rates, Resolved};
use service::paths::{Paths, TextFile};
use service::reload::Reload;
use tokio::sync::mpsc;

use crate::adapter::{Protocol, parameters};
use crate::failure::CallFailure;
use crate::http::ProviderClient;
use crate::job::Job;
use crate::reply::Delta;
use crate::scripted::{Script, ScriptPlayer};
use service::clock::Clock;

/// One call, as an adapter sees it.
#[derive(Debug)]
pub struct ProviderRequest<'a> {
    /// What the loop asks.
    pub item: &'a ModelItem,
    /// The model in the provider's words.
    pub upstream: &'a str,
    /// The provider's name.
    pub provider: &'a str,
    /// What is known of the model.
    pub settings: &'a ModelSettings,
    /// The trace that the call belongs to.
    pub traceparent: Option<String>,
}

/// A client of a provider.
#[derive(Debug)]
pub struct Provider(Client);

#[derive(Debug)]
enum Client {
    /// A client of a protocol over HTTP.
    Http(ProviderClient),
    /// A script that plays a model.
    Scripted(ScriptPlayer),
}

impl Provider {
    /// Name under which reasoning parts of replies are stored for the next request; `None` if the protocol has none.
    pub(crate) fn reasoning_name(&self) -> Option<&'static str> {
        match &self.0 {
            Client::Http(client) => client.protocol().reasoning_name(),
            Client::Scripted(_) => None,
        }
    }

    /// Maximum tokens of a reply, from the parameters of the session or else of the operator.
    pub(crate) fn output_max(&self, session: &Map<String, Value>) -> Option<u64> {
        match &self.0 {
            Client::Http(client) => client.output_max(session),
            Client::Scripted(_) => parameters::output_max(session),
        }
    }

    /// Whether its calls may cost money. Scripts cost nothing.
    fn is_billed(&self) -> bool {
        matches!(self.0, Client::Http(_))
    }

    /// Reads the description of a model from the provider; `None` if it has none.
    pub(crate) async fn describe_model(&self, upstream: &str) -> Result<Option<Value>, CallFailure> {
        match &self.0 {
            Client::Http(client) => client.describe_model(upstream).await,
            Client::Scripted(_) => Ok(None),
        }
    }

    /// Streams one reply into `deltas`, and returns `Ok` only if the reply is complete. Dropping the future ends the call.
    pub async fn call(
        &self,
        request: &ProviderRequest<'_>,
        deltas: &mpsc::Sender<Vec<Delta>>,
        clock: &dyn Clock,
    ) -> Result<(), CallFailure> {
        match &self.0 {
            Client::Http(client) => client.call(request, deltas, clock).await,
            Client::Scripted(player) => player.play(request.item, deltas).await,
        }
    }
}

/// Every provider by its name, and which model is whose.
#[derive(Debug)]
pub struct Providers {
    models: ModelsFile,
    by_name: BTreeMap<String, Arc<Provider>>,
}

impl Providers {
    /// Reads `models.yaml` and the scripts that it names, of `dir` or of where [`Paths::find`] looks, and again whenever one
    /// of them changes.
    pub fn follow(dir: Option<PathBuf>, readiness: Readiness) -> Result<Arc<Reload<Self>>, ConfigError> {
        Reload::start("gateway", readiness, move |pass, before| {
            let paths = Paths::find_in(pass, dir.as_deref())?;
            Self::build(before, models::load(&paths)?, &paths)
        })
    }

    /// The providers of a models file; scripts are read below `paths`.
    pub fn new(models: ModelsFile, paths: &Paths) -> Result<Self, ConfigError> {
        Self::build(None, models, paths)
    }

    /// As [`Providers::new`]. A provider that is as it was keeps its connections.
    fn build(before: Option<&Self>, models: ModelsFile, paths: &Paths) -> Result<Self, ConfigError> {
        let mut by_name = BTreeMap::new();
        for (name, entry) in &models.providers {
            let same = before.filter(|before| before.models.providers.get(name) == Some(entry));
            let reused = same.and_then(|before| before.by_name.get(name)).cloned();
            let provider = if let Some(protocol) = Protocol::from_kind(entry.kind) {
                reused.unwrap_or_else(|| Arc::new(Provider(Client::Http(ProviderClient::new(protocol, entry.clone())))))
            } else {
                let file = paths.read(entry.script.as_deref().unwrap_or_default())?;
                Arc::new(Provider(Client::Scripted(ScriptPlayer::new(Script::parse(&file)?))))
            };
            by_name.insert(name.clone(), provider);
        }
        Ok(Self { models, by_name })
    }

    /// The providers of a models file, each of them playing this script.
    pub fn from_script(models: ModelsFile, script: &TextFile) -> Result<Self, ConfigError> {
        let mut by_name = BTreeMap::new();
        for name in models.providers.keys() {
            let provider = Provider(Client::Scripted(ScriptPlayer::new(Script::parse(script)?)));
            by_name.insert(name.clone(), Arc::new(provider));
        }
        Ok(Self { models, by_name })
    }

    /// Whether a model can be found.
    pub fn has_model(&self, model: &str) -> bool {
        self.models.resolve(model).is_ok()
    }

    /// What a tenant's agent may spend.
    pub(crate) fn find_budgets(&self, tenant: &TenantId, agent: &str) -> Vec<&Budget> {
        self.models.budgets_of(tenant, agent)
    }

    /// Finds a model and the ways to it; an unknown one is the request's mistake.
    pub fn find_routes(&self, model: &str) -> Result<Routes, CallFailure> {
        let bad_request = |message: String| CallFailure::new(FailureKind::BadRequest, message);
        let resolved = self.models.resolve(model).map_err(|unknown| bad_request(unknown.to_string()))?;
        let routes = self.list_routes(&resolved);
        if routes.is_empty() {
            return Err(bad_request(format!("no provider for {model:?}")));
        }
        let long_context = resolved.entry.context_fallback.as_deref().and_then(|id| self.models.resolve(id).ok());
        let long_context = long_context.map(|longer| self.list_routes(&longer)).unwrap_or_default();
        Ok(Routes { id: resolved.id, routes, long_context })
    }

    /// The model's provider, then those that serve it as well.
    fn list_routes(&self, model: &Resolved) -> Vec<Route> {
        let first = Alternative { provider: model.provider.clone(), model: None, prices: None };
        let routes = std::iter::once(&first).chain(&model.entry.alternatives).filter_map(|route| {
            Some(Route {
                provider: route.provider.clone(),
                upstream: route.model.clone().unwrap_or_else(|| model.upstream.clone()),
                prices: route.prices.or(model.entry.prices),
                settings: model.entry.settings.clone(),
                rates: self.models.providers.get(&route.provider)?.limits,
                client: self.by_name.get(&route.provider)?.clone(),
            })
        });
        routes.collect()
    }
}

/// One way to a model.
#[derive(Debug, Clone)]
pub struct Route {
    /// The provider's name.
    pub(crate) provider: String,
    /// The model in the provider's words.
    pub(crate) upstream: String,
    /// What it costs there, where that is known.
    pub(crate) prices: Option<Prices>,
    /// What is known of the model.
    pub(crate) settings: ModelSettings,
    /// How much may be asked there.
    pub(crate) rates: Rates,
    /// The provider.
    pub client: Arc<Provider>,
}

impl Route {
    /// Tokens that the reply to a call may have, where anybody says so.
    pub(crate) fn output_max(&self, job: &Job) -> Option<u64> {
        self.client.output_max(&job.item.parameters)
    }

    /// Under which name parts of its replies are kept.
    pub(crate) fn signer_id(&self) -> String {
        signer_id(&self.provider, &self.upstream)
    }
}

/// What one account signed or encrypted no other one can read, whatever the model.
pub(crate) fn signer_id(provider: &str, upstream: &str) -> String {
    format!("{provider}/{upstream}")
}

impl Routes {
    /// A way whose price nobody knows, by its provider and name; scripts cost nothing.
    pub(crate) fn find_unpriced(&self) -> Option<String> {
        let mut routes = self.routes.iter().chain(&self.long_context);
        let route = routes.find(|route| route.prices.is_none() && route.client.is_billed())?;
        Some(route.signer_id())
    }
}

/// A model, and the ways to it.
#[derive(Debug, Clone)]
pub struct Routes {
    /// The model's id, as it was asked for.
    pub(crate) id: String,
    /// The preferred way first; never empty.
    pub routes: Vec<Route>,
    /// The ways to the model that is asked where a request is too long for this one.
    pub(crate) long_context: Vec<Route>,
}
