//! Problems that show only when the prompt of an agent is composed.

use std::collections::BTreeSet;

use contract::compose::{ComposeReply, ComposeRequest};
use contract::{AgentId, TenantId};
use prompt_composer::Catalog;
use prompt_composer::agents::Agents;

/// A problem of the prompt of an agent in the sessions of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PromptFinding {
    pub(super) message: String,
    /// Whether the agent works in spite of it, as with a prompt or a feature that does not exist. Else the composer
    /// refuses to compose the prompt.
    pub(super) is_warning: bool,
}

impl PromptFinding {
    /// Composes the prompt, and returns its warnings or the refusal.
    pub(super) fn collect(catalog: &Catalog, tenant: &TenantId, agent: &AgentId) -> BTreeSet<Self> {
        let request = ComposeRequest { agent: Some(agent.clone()), ..ComposeRequest::new(tenant.clone()) };
        match catalog.compose(&request) {
            ComposeReply::Composed(composed) => {
                composed.warnings.into_iter().map(|message| Self { message, is_warning: true }).collect()
            }
            ComposeReply::Refused { message, .. } => BTreeSet::from([Self { message, is_warning: false }]),
        }
    }

    /// The key of an agent that most likely has the mistake.
    pub(super) fn agent_key(&self) -> &'static str {
        if !self.is_warning {
            "model"
        } else if self.message.starts_with("continuation_config.") {
            "continuation_config"
        } else if self.message.contains("there is no prompt") {
            "prompt_file"
        } else {
            "features"
        }
    }

    /// The key of a tenant that most likely has the mistake.
    pub(super) fn tenant_key(&self) -> Option<&'static str> {
        let named = ["continuation_config", "ai_config"].into_iter().find(|key| self.message.starts_with(key));
        named.or_else(|| self.message.contains("feature").then_some("features"))
    }
}

/// Returns a tenant that the file does not name: a problem of its prompts is a mistake of the agent.
pub(super) fn unnamed_tenant(agents: &Agents) -> TenantId {
    let mut ids = (0..=agents.tenants().count()).filter_map(|n| TenantId::new(&format!("unnamed-{n}")).ok());
    ids.find(|id| agents.tenant(id).is_none()).unwrap_or_default()
}
