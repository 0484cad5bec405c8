//! Setup of a session: agent, model and settings, from its start to its end.

use std::sync::Arc;

use contract::AiConfig;
use contract::command::{ContinuationOverride, Features, Parent};
use contract::model::{Streaming, StreamingOverride};
use contract::settings::{AgentSettings, ModelSettings};
use reply::Patterns;
use serde::{Deserialize, Serialize};

use crate::approval::Approvals;

/// Agent, model and settings that a session keeps from its start to its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) agent: AgentSettings,
    pub(crate) model: ModelSettings,
    pub(crate) interactive: bool,
    pub(crate) parameters: serde_json::Map<String, serde_json::Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tool_choice: Vec<serde_json::Value>,
    /// Prompt and request settings of the session itself, without `streaming`.
    #[serde(default, skip_serializing_if = "AiConfig::is_empty")]
    pub(crate) ai_config: AiConfig,
    pub(crate) streaming: Streaming,
    /// Streaming settings of the session itself; none if it began before fold 13.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) own_streaming: Option<StreamingOverride>,
    #[serde(default)]
    pub(crate) fallbacks: Vec<ModelSettings>,
    /// Features that the session itself switched and replaced, for the next lookup of agent or model.
    #[serde(default)]
    pub(crate) features: Features,
    #[serde(default)]
    pub(crate) overrides: Option<ContinuationOverride>,
    /// The tools to which the session limits itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) only_tools: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) parent: Option<Box<Parent>>,
}

impl Setup {
    /// Returns the prompt and request settings of the session itself. Before fold 13 all of `streaming` was its own.
    pub(crate) fn own_ai_config(&self) -> AiConfig {
        let streaming = self.own_streaming.unwrap_or_else(|| StreamingOverride::from(&self.streaming));
        AiConfig { streaming, ..self.ai_config.clone() }
    }

    /// They compiled when the session started; if they no longer do, no pattern speaks. The process keeps them within
    /// one limit for all sessions: a session that held its own would keep them as long as it is in memory.
    pub(crate) fn patterns(&self) -> Arc<Patterns> {
        Patterns::compile(&self.agent.continuation).unwrap_or_default()
    }

    /// Returns the continuation settings of the session itself, overridden by `now`.
    pub(crate) fn overrides_with(&self, now: Option<&ContinuationOverride>) -> Option<ContinuationOverride> {
        match (self.overrides.clone(), now.cloned()) {
            (Some(before), Some(now)) => Some(before.and(now)),
            (before, now) => now.or(before),
        }
    }

    /// The same of its rules about asking a person.
    pub(crate) fn approvals(&self) -> Arc<Approvals> {
        Approvals::shared(&self.agent.approvals)
    }
}
