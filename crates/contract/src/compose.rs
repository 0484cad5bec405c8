//! `ai_rpc.prompt.compose` and `ai_rpc.prompt.agents`: requests to the prompt-composer for the parts of a session, and
//! for the list of agents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ErrorCode;
use crate::ai_config::AiConfig;
use crate::command::{Features, Start};
use crate::ids::{AgentId, TenantId};
use crate::model::StreamingOverride;
use crate::settings::{AgentSettings, ModelSettings, ToolFilter};
use crate::tool::ToolSpec;

/// Request to the composer: agent, model and the session's own settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ComposeRequest {
    /// Tenant whose agents and models count.
    pub tenant: TenantId,
    /// An agent's key or alias; the configured default where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// The model; the agent's where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Features switched for this session.
    #[serde(default)]
    pub features: Features,
    /// Features of `features` that the current command names. An unknown one of these is refused; an unknown one that
    /// an older command named is left out with a warning.
    #[serde(default, skip_serializing_if = "Features::is_empty")]
    pub named_features: Features,
    /// Whether tools are described.
    #[serde(default = "yes")]
    pub include_tools: bool,
    /// Whether shared components are added.
    #[serde(default = "yes")]
    pub include_shared: bool,
    /// Every tool of the tenant; the agent's filter is applied by the composer.
    #[serde(default)]
    pub tools: Vec<ToolSpec>,
    /// Values for `{{{name}}}`, over those of `ai_config`.
    #[serde(default)]
    pub parameters: std::collections::BTreeMap<String, String>,
    /// The session's own settings of prompt and requests, without `streaming`; the composer lays them over those of
    /// tenant, agent and model.
    #[serde(default, skip_serializing_if = "AiConfig::is_empty")]
    pub ai_config: AiConfig,
    /// The tools that the session may use, of those that the agent may; all of them where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_tools: Option<Vec<String>>,
    /// The template of continuation settings that the session names itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The judge that the session names itself; the composer checks that such a model exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge: Option<String>,
}

fn yes() -> bool {
    true
}

impl ComposeRequest {
    /// The default agent of a tenant with its own settings, without tools.
    pub fn new(tenant: TenantId) -> Self {
        Self {
            tenant,
            agent: None,
            model: None,
            features: Features::default(),
            named_features: Features::default(),
            include_tools: true,
            include_shared: true,
            tools: Vec::new(),
            parameters: std::collections::BTreeMap::new(),
            ai_config: AiConfig::default(),
            only_tools: None,
            template: None,
            judge: None,
        }
    }

    /// Makes the request for a session with these settings, in a tenant with these tools. All features of the settings
    /// count as named by the current command.
    pub fn of_start(tenant: TenantId, start: &Start, tools: Vec<ToolSpec>) -> Self {
        Self {
            agent: start.agent.clone(),
            model: start.model.clone(),
            features: start.features.clone(),
            named_features: start.features.clone(),
            tools,
            ai_config: start.own_ai_config().without_streaming(),
            only_tools: start.tools.clone(),
            template: start.continuation.as_ref().and_then(|continuation| continuation.template.clone()),
            judge: start.continuation.as_ref().and_then(|continuation| continuation.judge.clone()),
            ..Self::new(tenant)
        }
    }
}

/// Answer of the composer to such a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComposeReply {
    /// The parts of a session.
    Composed(Box<Composed>),
    /// Refusal; the same request will be refused again.
    Refused {
        /// Stable error code; see [`ErrorCode`].
        code: ErrorCode,
        /// Explanation for people: what failed, and what to do.
        message: String,
    },
}

/// The parts of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Composed {
    /// Text of the composed system prompt.
    pub prompt: String,
    /// SHA-256 over the prompt, in hex.
    pub fingerprint: String,
    /// Parts that make up the prompt, in order.
    pub components: Vec<Component>,
    /// Problems that did not stop the composition, for people.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Settings of the agent, after all layers.
    pub agent: AgentSettings,
    /// Settings of the model, as the catalogue has them.
    pub model: ModelSettings,
    /// Settings of prompt and requests, merged from all layers, without `streaming`; none from an older composer. See
    /// [`Composed::requests`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ai_config: Option<AiConfig>,
    /// Streaming settings of replies, merged from all layers. They stand apart because orchestrators before fold 13
    /// refuse an `ai_config` that has them.
    #[serde(default, skip_serializing_if = "crate::default::is_default")]
    pub streaming: StreamingOverride,
    /// Models that take the model's place when it fails, in order; the fallbacks of these are not followed. At most
    /// [`crate::limits::FALLBACKS_MAX`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<ModelSettings>,
}

impl Composed {
    /// Settings of prompt and requests, merged from all layers; none from an older composer.
    pub fn requests(&self) -> Option<AiConfig> {
        self.ai_config.clone().map(|ai_config| AiConfig { streaming: self.streaming, ..ai_config })
    }
}

/// One part of a composed prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PromptComponent")]
pub struct Component {
    /// Its file, relative to the prompts' directory.
    pub name: String,
    /// SHA-256 of its text, in hex.
    pub sha256: String,
    /// Offset of its text in the prompt, in bytes.
    #[serde(default)]
    pub start: usize,
    /// Bytes of its text.
    pub bytes: usize,
}

/// `ai_rpc.prompt.agents`: request for the list of agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentsRequest {
    /// Tenant whose agents and models count.
    pub tenant: TenantId,
}

/// Answer of the composer to such a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentsReply {
    /// Every agent, by key.
    pub agents: Vec<KnownAgent>,
    /// The models that are described; others of their providers can be asked for too, as `<provider>/<name>`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<KnownModel>,
}

/// A model, as sessions ask for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Model")]
pub struct KnownModel {
    /// Settings of the model, as the catalogue has them.
    #[serde(flatten)]
    pub settings: ModelSettings,
    /// Id of the provider that serves the model.
    pub provider: String,
    /// Whether sessions have it whose agent names none.
    #[serde(default)]
    pub is_default: bool,
    /// The provider's name for it; empty of an older composer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub upstream: String,
    /// Requests in a minute that all gateways together send to its provider at most, for all models there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u64>,
    /// The same for tokens of requests and replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<u64>,
}

/// An agent, as others address it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownAgent {
    /// Key of the agent in its configuration.
    pub id: AgentId,
    /// Its name, as people read it.
    pub name: String,
    /// Further names under which it may be called, beside its key.
    #[serde(default)]
    pub aliases: Vec<AgentId>,
    /// Filter of the tools that it may use; it tells, for example, whether the agent reads mail.
    #[serde(default)]
    pub tools: ToolFilter,
    /// Its model, where it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether sessions have it that name none.
    #[serde(default)]
    pub is_default: bool,
}
