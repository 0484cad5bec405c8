//! Checked entries of `models.yaml` for models and providers, and the lookup of a model by its id.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use contract::TenantId;
use contract::settings::ModelSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::budget::{self, BudgetRule};
use crate::continuation::Layer;
use crate::environment::env;
use crate::error::ConfigError;
use crate::secret::Secret;
use crate::suggest;
use crate::text_file::TextFile;
use crate::yaml;

/// Parameters of a request that nobody sets from outside: the gateway writes them itself.
pub const RESERVED_PARAMETERS: &[&str] = &[
    "model",
    "messages",
    "input",
    "contents",
    "system",
    "systemInstruction",
    "tools",
    "toolConfig",
    "stream",
    "stream_options",
    "store",
    "n",
];

/// The whole file, checked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelsFile {
    /// The model of agents that name none.
    pub default: Option<String>,
    /// Providers by their key.
    pub providers: BTreeMap<String, ProviderEntry>,
    /// Models by their id. A key also matches the ids that begin with it.
    pub models: BTreeMap<String, ModelEntry>,
    /// Spending limits of tenants and agents.
    pub budgets: Vec<BudgetRule>,
    /// Descriptions of settings that are odd but not refused.
    pub warnings: Vec<String>,
}

/// Protocol of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// `POST <base_url>/chat/completions`, as many servers understand it.
    OpenaiChat,
    /// OpenAI Responses: `POST <base_url>/responses`.
    OpenaiResponses,
    /// Anthropic Messages: `POST <base_url>/messages`.
    Anthropic,
    /// Generate-content of Google: `POST <base_url>/models/<model>:streamGenerateContent`.
    Gemini,
    /// Replies from a script, for rehearsals and tests.
    Scripted,
}

/// Deviation of a server of chat completions from OpenAI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Quirk {
    /// It does not know `stream_options`.
    NoStreamOptions,
    /// It does not know `parallel_tool_calls`.
    NoParallelToolCalls,
    /// `max_tokens` goes by the name of `max_completion_tokens`.
    MaxCompletionTokens,
    /// It knows no `tool_choice` but `auto` and `none`.
    NoToolChoiceRequired,
    /// It wants its `reasoning_content` back.
    ReplayReasoning,
    /// It takes no `null` as the content of a message with tool calls.
    EmptyContent,
}

/// The quirks of one server.
pub type Quirks = BTreeSet<Quirk>;

/// A checked entry of `providers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderEntry {
    /// Protocol of the provider.
    pub kind: ProviderKind,
    /// Base URL, without a slash at the end; all but `scripted` have one.
    pub base_url: Option<String>,
    /// The environment variable that holds its key.
    pub api_key_env: Option<String>,
    /// A file that holds its key.
    pub api_key_file: Option<PathBuf>,
    /// The header that carries the key, where it is another one than the protocol's.
    pub key_header: Option<String>,
    /// Headers beside the key's.
    pub headers: BTreeMap<String, Secret>,
    /// Query parameters of every request, such as `api-version`.
    pub query: BTreeMap<String, String>,
    /// Deviations of the provider from the protocol.
    pub quirks: Quirks,
    /// Parameters of every request beside those that a session asks for. A session replaces only those that it may set.
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// Parameters that sessions may set beside those that the protocol is known to take.
    pub allow_parameters: Vec<String>,
    /// Whether parameters that the protocol does not know are left out, instead of failing the request.
    pub drop_unknown_parameters: bool,
    /// Rate limits of the provider for its key.
    pub limits: Rates,
    /// Directory in which requests and replies are recorded, without secrets.
    pub record: Option<PathBuf>,
    /// Recording whose replies replace those of the provider: a file or a directory.
    pub replay: Option<PathBuf>,
    /// Whether its name may stand for an address of a private network.
    pub private_network: bool,
    /// The script, relative to the configuration directory; `scripted` has one.
    pub script: Option<String>,
}

/// Rate limits of a provider for its key, over all gateways. None: no limit but the provider's own refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rates {
    /// Requests in a minute.
    #[schemars(range(min = 1))]
    pub requests_per_minute: Option<u64>,
    /// Tokens of requests and replies in a minute.
    #[schemars(range(min = 1))]
    pub tokens_per_minute: Option<u64>,
}

impl Rates {
    /// Whether there is no limit.
    pub fn is_none(&self) -> bool {
        self.requests_per_minute.is_none() && self.tokens_per_minute.is_none()
    }
}

/// A model. The default is what is assumed of one that nobody described.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ModelEntry {
    /// Provider that serves it: a key of `providers`.
    pub provider: String,
    /// Its name in the provider's words; the id that was asked for where none is given.
    pub model: Option<String>,
    /// Model settings that a session commits, without the id.
    pub settings: ModelSettings,
    /// Variant of its prompts: `<name>.<prompt_variant>.md`.
    pub prompt_variant: Option<String>,
    /// Prices, where they are known.
    pub prices: Option<Prices>,
    /// Other providers of the same model, in the order in which they are tried when it is unavailable.
    pub alternatives: Vec<Alternative>,
    /// The id of the model that answers in its place when a request is too long for it.
    pub context_fallback: Option<String>,
    /// Ids of the models that take its place when it fails, in order; theirs are not followed.
    pub fallbacks: Vec<String>,
    /// Continuation settings with it.
    pub continuation: Layer,
    /// Whether its continuation settings go over those of agents.
    pub is_over_agent: bool,
    /// Prompts and requests with it, where agent and session do not say so themselves.
    pub ai_config: contract::AiConfig,
}

/// The same model at another provider.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "alternative")]
pub struct Alternative {
    /// Provider that serves it: a key of `providers`.
    pub provider: String,
    /// Its name in that provider's words; as at the first one where none is given.
    #[serde(default)]
    pub model: Option<String>,
    /// Prices at that provider; if absent, those of the model.
    #[serde(default)]
    pub prices: Option<Prices>,
}

/// US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// US dollars for a million tokens of requests.
    pub input: f64,
    /// Tokens of requests that the provider had cached; as `input` where none is given.
    pub cached: Option<f64>,
    /// US dollars for a million tokens of replies.
    pub output: f64,
}

/// A model id, resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The id that was asked for.
    pub id: String,
    /// Key of its entry in `models`; none if nobody described it.
    pub key: Option<String>,
    /// The model's name in the provider's words.
    pub upstream: String,
    /// Entry of the model.
    pub entry: ModelEntry,
    /// Key of the provider in `providers`.
    pub provider: String,
    /// Its entry in `providers`.
    pub provider_entry: ProviderEntry,
}

/// No model of that id, and no provider that takes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no model {id:?} in models.yaml{suggestion}; there are {known}, and every model of a provider as \
     <provider>/<its name for the model> ({providers})"
)]
pub struct UnknownModel {
    /// Id that was asked for.
    pub id: String,
    /// The known id that is closest, in words.
    suggestion: String,
    known: String,
    providers: String,
}

impl ModelsFile {
    /// Finds a model: by its id, else by the longest key that the id begins with, else as `<provider>/<name>`.
    pub fn resolve(&self, id: &str) -> Result<Resolved, UnknownModel> {
        let known = |(key, entry): (&String, &ModelEntry)| (Some(key.clone()), entry.clone());
        let exact = self.models.get_key_value(id).map(|found| (known(found), found.1.model.clone()));
        let prefix = || {
            let fits = self.models.iter().filter(|(key, _)| id.starts_with(key.as_str()));
            fits.max_by_key(|(key, _)| key.len()).map(|found| (known(found), None))
        };
        let direct = || {
            let (provider, name) = id.split_once('/').filter(|(_, name)| !name.is_empty())?;
            let assumed = || (None, ModelEntry { provider: provider.to_owned(), ..ModelEntry::default() });
            let entry = || self.known(provider, name).map_or_else(assumed, known);
            self.providers.contains_key(provider).then(|| (entry(), Some(name.to_owned())))
        };
        let ((key, entry), upstream) = exact.or_else(prefix).or_else(direct).ok_or_else(|| self.unknown(id))?;
        let provider = entry.provider.clone();
        let provider_entry = self.providers.get(&provider).cloned().ok_or_else(|| self.unknown(id))?;
        let upstream = upstream.unwrap_or_else(|| id.to_owned());
        Ok(Resolved { id: id.to_owned(), key, upstream, entry, provider, provider_entry })
    }

    /// Refuses a layer whose judge is not a model of this file.
    pub fn check_judge(&self, file: &TextFile, layer: &Layer) -> Result<(), ConfigError> {
        let Some((name, place)) = layer.judge() else { return Ok(()) };
        self.resolve(name).map(|_| ()).map_err(|unknown| yaml::at(file, place, format!("judge: {unknown}")))
    }

    /// The budgets that an agent's calls count against: of each period one of the tenant and one of the agent, the most
    /// particular ones.
    pub fn budgets_of(&self, tenant: &TenantId, agent: &str) -> Vec<&BudgetRule> {
        budget::applying_to(&self.budgets, tenant, agent)
    }

    /// Finds the entry of a model by its provider's name for it: it is the same model, and costs the same, under
    /// whichever id it is asked for.
    fn known(&self, provider: &str, name: &str) -> Option<(&String, &ModelEntry)> {
        let own = self.models.iter().filter(|(_, entry)| entry.provider == provider);
        let called = |key: &str, entry: &ModelEntry| entry.model.as_deref().unwrap_or(key) == name;
        let exact = own.clone().find(|(key, entry)| called(key, entry));
        let begins = || own.filter(|(key, _)| name.starts_with(key.as_str())).max_by_key(|(key, _)| key.len());
        exact.or_else(begins)
    }

    /// Returns the fallbacks of a model, in order. A key may stand both for the id that was asked for and for a
    /// fallback: a model is never its own fallback.
    pub fn fallbacks(&self, model: &Resolved) -> Vec<Resolved> {
        let others = model.entry.fallbacks.iter().filter(|fallback| **fallback != model.id);
        others.filter_map(|fallback| self.resolve(fallback).ok()).collect()
    }

    fn unknown(&self, id: &str) -> UnknownModel {
        let list = |keys: Vec<&str>| if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
        UnknownModel {
            id: id.chars().take(80).collect(),
            suggestion: suggest::did_you_mean(id, self.models.keys().map(String::as_str)),
            known: list(self.models.keys().map(String::as_str).collect()),
            providers: list(self.providers.keys().map(String::as_str).collect()),
        }
    }
}

impl Resolved {
    /// Returns the model settings that a session commits.
    pub fn settings(&self) -> ModelSettings {
        ModelSettings { id: self.id.clone(), ..self.entry.settings.clone() }
    }
}

impl ProviderEntry {
    /// The provider's key; none where it needs none. A key that is named but not there is an error.
    pub fn api_key(&self) -> Result<Option<Secret>, ConfigError> {
        if let Some(path) = &self.api_key_file {
            let text = std::fs::read_to_string(path)
                .map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?;
            if text.trim().is_empty() {
                return Err(ConfigError::NoSecret(format!("the file {} is empty", path.display())));
            }
            return Ok(Some(Secret::new(text.trim())));
        }
        let Some(name) = &self.api_key_env else { return Ok(None) };
        match env(name).filter(|key| !key.trim().is_empty()) {
            Some(key) => Ok(Some(Secret::new(key.trim()))),
            None => Err(ConfigError::NoSecret(format!("the environment variable {name} is not set"))),
        }
    }

    /// Whether it names a key, and the key is there.
    pub fn has_key(&self) -> bool {
        matches!(self.api_key(), Ok(Some(_)))
    }
}
