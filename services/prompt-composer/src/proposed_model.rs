//! The model of agents that name none, where the configuration has none either: gateways propose it by their keys.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bus::Bus;
use service::reload::Reload;
use tokio_util::sync::CancellationToken;

use crate::Catalog;

/// Pause between requests as long as nothing is proposed: a gateway may start, or get a key.
const ASK_PAUSE: Duration = Duration::from_secs(2);
/// Pause between requests otherwise: gateways get other keys in a rollout only.
const REFRESH_PAUSE: Duration = Duration::from_secs(30);

/// The last proposal, shared by all catalogs of a composer.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProposedModel(Arc<RwLock<Option<String>>>);

impl ProposedModel {
    pub(crate) fn get(&self) -> Option<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, model: Option<String>) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if *current != model {
            tracing::info!(model, "agents that name no model use the one that the gateways propose by their keys");
            *current = model;
        }
    }

    /// Asks a gateway, unless the configuration has a default. Where none answers, the last proposal stands.
    pub(crate) async fn refresh(&self, bus: &Bus, catalog: &Catalog) {
        if catalog.has_default_model() {
            return;
        }
        match bus.ask_model_proposal().await {
            Ok(Some(proposal)) => self.set(proposal.model),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "the gateways were not asked for a model"),
        }
    }

    /// Asks again and again, until the end.
    pub(crate) async fn follow(self, bus: Bus, catalog: Arc<Reload<Catalog>>, ending: CancellationToken) {
        let is_known = || catalog.get().has_default_model() || self.get().is_some();
        let pause = || tokio::time::sleep(if is_known() { REFRESH_PAUSE } else { ASK_PAUSE });
        while ending.run_until_cancelled(pause()).await.is_some() {
            self.refresh(&bus, &catalog.get()).await;
        }
    }
}
