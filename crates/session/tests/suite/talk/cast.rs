//! The agent and the model of a session under test.

use contract::compose::Composed;
use contract::settings::{AgentSettings, ApprovalRule, ContinuationSettings, ModelSettings, OnExpiry, ToolFilter};
use contract::tool::ApprovalPolicy;
use contract::{AgentId, AiConfig};

/// Agent, models and settings of a session under test.
pub(crate) struct Cast {
    pub(crate) agent: &'static str,
    pub(crate) continuation: ContinuationSettings,
    pub(crate) model: ModelSettings,
    pub(crate) fallbacks: Vec<ModelSettings>,
    pub(crate) approvals: Vec<ApprovalRule>,
    pub(crate) tools: Vec<String>,
    pub(crate) ai_config: Option<AiConfig>,
}

impl Default for Cast {
    fn default() -> Self {
        Self {
            agent: "e",
            continuation: ContinuationSettings::default(),
            model: ModelSettings { multi_tool: true, max_parallel_tools: 4, ..ModelSettings::default() },
            fallbacks: Vec::new(),
            approvals: Vec::new(),
            tools: vec!["*".to_owned()],
            ai_config: None,
        }
    }
}

impl Cast {
    pub(super) fn composed(self) -> Composed {
        Composed {
            prompt: "You are a test.".to_owned(),
            fingerprint: "f".to_owned(),
            components: Vec::new(),
            warnings: Vec::new(),
            agent: AgentSettings {
                id: AgentId::new(self.agent).unwrap(),
                name: self.agent.to_uppercase(),
                continuation: self.continuation,
                tools: ToolFilter { allow: self.tools, deny: Vec::new() },
                approvals: self.approvals,
            },
            model: self.model,
            streaming: self.ai_config.as_ref().map(|ai_config| ai_config.streaming).unwrap_or_default(),
            ai_config: self.ai_config.map(contract::ai_config::AiConfig::without_streaming),
            fallbacks: self.fallbacks,
        }
    }
}

/// A rule on all calls of a tool.
pub(crate) fn rule(tool: &str, ask: ApprovalPolicy) -> ApprovalRule {
    ApprovalRule {
        tool: tool.to_owned(),
        when: std::collections::BTreeMap::new(),
        ask,
        expires: None,
        on_expiry: OnExpiry::Deny,
    }
}
