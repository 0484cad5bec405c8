//! Proposes a model for agents that name none. Keys choose it, and only gateways have keys.

use std::sync::Arc;

use bus::Bus;
use configuration::models::{MODEL_BY_KEY, is_key_set};
use contract::proposal::ModelProposal;
use service::reload::Reload;
use tokio_util::sync::CancellationToken;

use crate::provider::Providers;

/// Answers requests for a proposal, until the end.
pub(crate) async fn serve(bus: Bus, providers: Arc<Reload<Providers>>, ending: CancellationToken) {
    bus::rpc::serve_until_cancelled(&ending, || {
        let providers = providers.clone();
        bus.serve_model_proposal(move || propose(&providers.get(), is_key_set))
    })
    .await;
}

/// The model of the first key that is set, if models.yaml still has it.
fn propose(providers: &Providers, is_set: impl Fn(&str) -> bool) -> ModelProposal {
    let model = MODEL_BY_KEY.iter().find(|(key, model)| is_set(key) && providers.find_routes(model).is_ok());
    ModelProposal { model: model.map(|(_, model)| (*model).to_owned()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use configuration::{Paths, TextFile, models};

    use super::*;

    fn propose_with(models: &str, keys: &[&str]) -> Option<String> {
        let file = TextFile { origin: "models.yaml".to_owned(), text: models.to_owned() };
        let providers = Providers::new(models::parse(&file).unwrap(), &Paths::find(None).unwrap()).unwrap();
        propose(&providers, |key| keys.contains(&key)).model
    }

    #[test]
    fn proposed_model_is_one_that_has_a_key_and_an_entry() {
        let shipped = "providers:\n  anthropic: {kind: anthropic, base_url: https://a.example/v1, \
                       api_key_env: ANTHROPIC_API_KEY}\nmodels:\n  claude: {provider: anthropic}\n";
        assert_eq!(propose_with(shipped, &[]), None);
        assert_eq!(propose_with(shipped, &["ANTHROPIC_API_KEY"]).as_deref(), Some("claude-sonnet-4-5"));
        // A key of a provider that models.yaml does not have chooses nothing.
        assert_eq!(propose_with(shipped, &["OPENAI_API_KEY"]), None);
        let both = ["OPENAI_API_KEY", "ANTHROPIC_API_KEY"];
        assert_eq!(propose_with(shipped, &both).as_deref(), Some("claude-sonnet-4-5"));
    }
}
