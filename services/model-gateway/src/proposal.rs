//! Proposes a model for agents that name none. Keys choose it, and only gateways have keys.

use std::sync::Arc;

use bus::Bus;
use contract::proposal::ModelProposal;
use service::reload::Reload;
use tokio_util::sync::CancellationToken;

use crate::provider::Providers;

/// Answers requests for a proposal, until the end.
pub(crate) async fn serve(bus: Bus, providers: Arc<Reload<Providers>>, ending: CancellationToken) {
    bus::rpc::serve_until_cancelled(&ending, || {
        let providers = providers.clone();
        bus.serve_model_proposal(move || ModelProposal { model: providers.get().find_default_model() })
    })
    .await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use configuration::{Paths, TextFile, models};

    use super::*;

    #[test]
    fn proposed_model_is_one_whose_key_is_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let key = folder.path().join("key");
        let text = format!(
            "providers:\n  openai: {{kind: openai_chat, base_url: https://o.example/v1, api_key_env: AILOOP_NO_SUCH_KEY}}\n  \
             anthropic: {{kind: anthropic, base_url: https://a.example/v1, api_key_file: {}}}\n\
             models:\n  gpt: {{provider: openai}}\n  claude: {{provider: anthropic}}\n",
            key.display()
        );
        let file = TextFile { origin: "models.yaml".to_owned(), text };
        let providers = Providers::new(models::parse(&file).unwrap(), &Paths::find(None).unwrap()).unwrap();
        assert_eq!(providers.find_default_model(), None);
        std::fs::write(&key, "secret\n").unwrap();
        assert_eq!(providers.find_default_model().as_deref(), Some("claude-sonnet-4-5"));
    }
}
