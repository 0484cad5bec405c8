//! The model of agents that name none, where the configuration has none either: gateways propose it by their keys.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bus::Bus;
use tokio_util::sync::CancellationToken;

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

    pub(crate) fn set(&self, model: Option<String>) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if *current != model {
            tracing::info!(model, "agents that name no model use the one that the gateways propose by their keys");
            *current = model;
        }
    }

    /// Asks a gateway. Where none answers, the last proposal stands.
    pub(crate) async fn refresh(&self, bus: &Bus) {
        match bus.ask_model_proposal().await {
            Ok(Some(proposal)) => self.set(proposal.model),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "the gateways were not asked for a model"),
        }
    }

    /// Asks again and again, as long as a proposal is needed, until the end.
    pub(crate) async fn follow(self, bus: Bus, is_needed: impl Fn() -> bool, ending: CancellationToken) {
        let is_settled = || !is_needed() || self.get().is_some();
        let pause = || tokio::time::sleep(if is_settled() { REFRESH_PAUSE } else { ASK_PAUSE });
        while ending.run_until_cancelled(pause()).await.is_some() {
            if is_needed() {
                self.refresh(&bus).await;
            }
        }
    }
}
