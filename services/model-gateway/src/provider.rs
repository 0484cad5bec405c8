//! The providers of `models.yaml`, and the routes to models.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use configuration::models::{self, Alternative, BudgetRule, ModelsFile, Prices, ProviderEntry, Rates, Resolved};
use configuration::{ConfigError, Paths};
use contract::TenantId;
use contract::model::FailureKind;
use contract::settings::ModelSettings;
use serde_json::{Map, Value};
use service::health::Readiness;
use service::reload::Reload;
use tokio::sync::mpsc;

use crate::adapter::{ProviderProtocol, parameters};
use crate::failure::CallFailure;
use crate::http::ProviderClient;
use crate::job::ModelJob;
pub use crate::provider_request::ProviderRequest;
use crate::provider_request::signer_id;
use crate::reply::Delta;
use crate::scripted::{Script, ScriptPlayer};
use service::clock::Clock;

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

    /// Streams one reply into `deltas`, and returns `Ok` only if the reply is complete. Dropping the future ends the
    /// call.
    pub async fn call(
        &self,
        request: &ProviderRequest<'_>,
        deltas: &mpsc::Sender<Vec<Delta>>,
        clock: &dyn Clock,
    ) -> Result<(), CallFailure> {
        match &self.0 {
            Client::Http(client) => client.call(request, deltas, clock).await,
            Client::Scripted(player) => player.play(&request.whole_item(), deltas).await,
        }
    }
}

/// All providers by name, and the models that they serve.
#[derive(Debug)]
pub struct Providers {
    models: ModelsFile,
    by_name: BTreeMap<String, Arc<Provider>>,
}

impl Providers {
    /// Reads `models.yaml` and its scripts from `dir` or where [`Paths::find`] looks, and reloads them when one
    /// changes.
    pub fn follow(dir: Option<PathBuf>, readiness: Readiness) -> Result<Arc<Reload<Self>>, ConfigError> {
        Reload::start("gateway", readiness, move |pass, before| {
            let paths = Paths::find_in(pass, dir.as_deref())?;
            Self::build(before, models::load(&paths)?, &paths)
        })
    }

    /// The providers of a models file, with its scripts read below `paths`.
    pub fn new(models: ModelsFile, paths: &Paths) -> Result<Self, ConfigError> {
        Self::build(None, models, paths)
    }

    /// Builds the providers as [`Providers::new`] does. A provider whose entry has not changed keeps its connections.
    fn build(before: Option<&Self>, models: ModelsFile, paths: &Paths) -> Result<Self, ConfigError> {
        let mut by_name = BTreeMap::new();
        for (name, entry) in &models.providers {
            let same = before.filter(|before| before.models.providers.get(name) == Some(entry));
            let reused = same.and_then(|before| before.by_name.get(name)).cloned();
            let provider = if let Some(protocol) = ProviderProtocol::from_kind(entry.kind) {
                reused.unwrap_or_else(|| Arc::new(Provider(Client::Http(ProviderClient::new(protocol, entry.clone())))))
            } else {
                let file = paths.read(entry.script.as_deref().unwrap_or_default())?;
                Arc::new(Provider(Client::Scripted(ScriptPlayer::new(Script::parse(&file)?))))
            };
            by_name.insert(name.clone(), provider);
        }
        Ok(Self { models, by_name })
    }

    /// The model for agents that name none, by the keys that are there now.
    pub(crate) fn find_default_model(&self) -> Option<String> {
        self.models.find_default_model(ProviderEntry::has_key).map(|model| model.id)
    }

    /// Whether `models.yaml` has a model of this id, or a provider for it.
    pub fn has_model(&self, model: &str) -> bool {
        self.models.resolve(model).is_ok()
    }

    /// Budgets that limit an agent of a tenant.
    pub(crate) fn find_budgets(&self, tenant: &TenantId, agent: &str) -> Vec<&BudgetRule> {
        self.models.budgets_of(tenant, agent)
    }

    /// Every budget of models.yaml.
    pub(crate) fn budgets(&self) -> &[BudgetRule] {
        &self.models.budgets
    }

    /// Finds the routes to a model. An unknown model is a bad request.
    pub fn find_routes(&self, model: &str) -> Result<ModelRoutes, CallFailure> {
        let bad_request = |message: String| CallFailure::new(FailureKind::BadRequest, message);
        let resolved = self.models.resolve(model).map_err(|unknown| bad_request(unknown.to_string()))?;
        let routes = self.list_routes(&resolved);
        if routes.is_empty() {
            return Err(bad_request(format!("no provider for {model:?}")));
        }
        let long_context = resolved.entry.context_fallback.as_deref().and_then(|id| self.models.resolve(id).ok());
        let long_context = long_context.map(|longer| self.list_routes(&longer)).unwrap_or_default();
        Ok(ModelRoutes { routes, long_context })
    }

    /// The route to the model's own provider, then those to its alternatives.
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

/// One route to a model: a provider and the model's name there.
#[derive(Debug, Clone)]
pub struct Route {
    /// Name of the provider.
    pub(crate) provider: String,
    /// Name of the model at the provider.
    pub(crate) upstream: String,
    /// Prices of the model at this provider, if known.
    pub(crate) prices: Option<Prices>,
    /// Known settings of the model.
    pub(crate) settings: ModelSettings,
    /// Rate limits of the provider.
    pub(crate) rates: Rates,
    /// Client that sends the requests.
    pub client: Arc<Provider>,
}

impl Route {
    /// Maximum tokens of the reply to a call, if the session or the operator sets one.
    pub(crate) fn output_max(&self, job: &ModelJob) -> Option<u64> {
        self.client.output_max(&job.item.parameters)
    }

    /// Name of the account and model that sign reasoning parts of replies.
    pub(crate) fn signer_id(&self) -> String {
        signer_id(&self.provider, &self.upstream)
    }
}

impl ModelRoutes {
    /// Name of the first route without prices. Scripts cost nothing and need none.
    pub(crate) fn find_unpriced(&self) -> Option<String> {
        let mut routes = self.routes.iter().chain(&self.long_context);
        let route = routes.find(|route| route.prices.is_none() && route.client.is_billed())?;
        Some(route.signer_id())
    }
}

/// A model and the routes to it.
#[derive(Debug, Clone)]
pub struct ModelRoutes {
    /// The preferred route first; never empty.
    pub routes: Vec<Route>,
    /// Routes to the model with a longer context window, for a request that is too long for this model.
    pub(crate) long_context: Vec<Route>,
}
