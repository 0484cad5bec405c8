//! Models and their providers: `models.yaml`. Endpoints and keys come from here and nowhere else.

use std::collections::BTreeMap;
use std::path::PathBuf;

use contract::limits::FALLBACKS_MAX;
use contract::settings::ModelSettings;
use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::config::{ConfigError, env};
use crate::paths::{Paths, TextFile};
use crate::{Secret, yaml};

/// The file's name.
pub const FILE: &str = "models.yaml";

/// The whole file.
#[derive(Debug, Clone, PartialEq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub struct ModelsFile {
    /// The model of agents that name none.
    pub default: Option<String>,
    /// Who serves models.
    pub providers: BTreeMap<String, ProviderEntry>,
    /// What is known of models. A key also stands for the ids that begin with it.
    pub models: BTreeMap<String, ModelEntry>,
}

/// How a provider is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderKind {
    /// `POST <base_url>/chat/completions`, as many servers understand it.
    OpenaiChat,
    /// Replies from a script, for rehearsals and tests.
    Scripted,
}

/// A provider.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderEntry {
    /// How it is spoken to.
    pub kind: ProviderKind,
    /// Where it is, without a slash at the end; needed by `openai_chat`.
    #[serde(default)]
    pub base_url: Option<String>,
    /// The environment variable that holds its key.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// A file that holds its key.
    #[serde(default)]
    pub api_key_file: Option<PathBuf>,
    /// Headers beside the key's.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// The script, relative to the configuration directory; needed by `scripted`.
    #[serde(default)]
    pub script: Option<String>,
}

/// A model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelEntry {
    /// Who serves it: a key of `providers`.
    pub provider: String,
    /// Its name in the provider's words; the id that was asked for where none is given.
    #[serde(default)]
    pub model: Option<String>,
    /// Whether it takes several tools in one request and calls several in one reply.
    #[serde(default)]
    pub multi_tool: bool,
    /// Calls of one reply that run at once.
    #[serde(default = "one")]
    pub max_parallel_tools: u32,
    /// Whether it answers in a given JSON Schema.
    #[serde(default)]
    pub structured_output: bool,
    /// Whether it reasons before it answers.
    #[serde(default)]
    pub reasoning: bool,
    /// Ids of the models that take its place when it fails, in order; theirs are not followed.
    #[serde(default)]
    pub fallbacks: Vec<Spanned<String>>,
    /// Tokens of a request and its reply together.
    #[serde(default)]
    pub context_window: Option<u64>,
    /// Tokens of one reply.
    #[serde(default)]
    pub max_output: Option<u64>,
    /// Which variant of prompts it gets: `<name>.<prompt_variant>.md`.
    #[serde(default)]
    pub prompt_variant: Option<String>,
    /// What it costs.
    #[serde(default)]
    pub prices: Option<Prices>,
}

fn one() -> u32 {
    1
}

/// US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// Tokens of requests.
    pub input: f64,
    /// Tokens of requests that the provider had cached; as `input` where none is given.
    pub cached: Option<f64>,
    /// Tokens of replies.
    pub output: f64,
}

/// A model id, resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The id that was asked for.
    pub id: String,
    /// The model's name in the provider's words.
    pub upstream: String,
    /// What is known of the model.
    pub entry: ModelEntry,
    /// The provider's key.
    pub provider: String,
    /// The provider.
    pub provider_entry: ProviderEntry,
}

/// No model of that id, and no provider that takes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no model {id:?} in models.yaml; there are {known}, and every model of a provider as \
     <provider>/<its name for the model> ({providers})"
)]
pub struct UnknownModel {
    /// What was asked for.
    pub id: String,
    known: String,
    providers: String,
}

/// Reads and checks the file.
pub fn load(paths: &Paths) -> Result<ModelsFile, ConfigError> {
    let file = paths.read(FILE)?;
    parse(&file)
}

/// Checks a text.
pub fn parse(file: &TextFile) -> Result<ModelsFile, ConfigError> {
    let mut models: ModelsFile = yaml::parse(file)?;
    let bad = |message: String| ConfigError::Bad { origin: file.origin.clone(), line: 0, column: 0, message };
    for (name, provider) in &mut models.providers {
        match provider.kind {
            ProviderKind::OpenaiChat => {
                let url = provider.base_url.as_deref().unwrap_or_default();
                if !url.starts_with("http://") && !url.starts_with("https://") {
                    return Err(bad(format!("provider {name} needs a base_url that begins with http:// or https://")));
                }
                provider.base_url = Some(url.trim_end_matches('/').to_owned());
            }
            ProviderKind::Scripted if provider.script.is_none() => {
                return Err(bad(format!("provider {name} needs a script")));
            }
            ProviderKind::Scripted => {}
        }
    }
    for (id, model) in &models.models {
        if !models.providers.contains_key(&model.provider) {
            return Err(bad(format!("model {id} names the provider {:?}, which is not there", model.provider)));
        }
        check_fallbacks(file, &models, id, model)?;
    }
    Ok(models)
}

/// Every fallback is a model that can be found, another one, and named once.
fn check_fallbacks(file: &TextFile, models: &ModelsFile, id: &str, model: &ModelEntry) -> Result<(), ConfigError> {
    for (index, fallback) in model.fallbacks.iter().enumerate() {
        let refuse = |message: String| Err(yaml::at(file, fallback.referenced, message));
        let name = fallback.value.as_str();
        if index >= FALLBACKS_MAX {
            return refuse(format!("model {id} has {} fallbacks; at most {FALLBACKS_MAX}", model.fallbacks.len()));
        }
        if name == id {
            return refuse(format!("model {id} is its own fallback; name another model"));
        }
        if model.fallbacks.iter().take(index).any(|earlier| earlier.value == name) {
            return refuse(format!("model {id} names the fallback {name} twice"));
        }
        if let Err(unknown) = models.resolve(name) {
            return refuse(format!("model {id} cannot fall back: {unknown}"));
        }
    }
    Ok(())
}

impl ModelsFile {
    /// Finds a model: by its id, else by the longest key that the id begins with, else as `<provider>/<name>`.
    pub fn resolve(&self, id: &str) -> Result<Resolved, UnknownModel> {
        let exact = self.models.get(id).map(|entry| (entry.clone(), entry.model.clone()));
        let prefix = || {
            let fits = self.models.iter().filter(|(key, _)| id.starts_with(key.as_str()));
            fits.max_by_key(|(key, _)| key.len()).map(|(_, entry)| (entry.clone(), None))
        };
        let direct = || {
            let (provider, name) = id.split_once('/').filter(|(_, name)| !name.is_empty())?;
            self.providers.contains_key(provider).then(|| (ModelEntry::of(provider), Some(name.to_owned())))
        };
        let (entry, upstream) = exact.or_else(prefix).or_else(direct).ok_or_else(|| self.unknown(id))?;
        let provider = entry.provider.clone();
        let provider_entry = self.providers.get(&provider).cloned().ok_or_else(|| self.unknown(id))?;
        let upstream = upstream.unwrap_or_else(|| id.to_owned());
        Ok(Resolved { id: id.to_owned(), upstream, entry, provider, provider_entry })
    }

    /// Who takes a model's place, in order. A key may stand for the id that was asked for and for a fallback: a model never
    /// takes its own place.
    pub fn fallbacks(&self, model: &Resolved) -> Vec<ModelSettings> {
        let others = model.entry.fallbacks.iter().filter(|fallback| fallback.value != model.id);
        others.filter_map(|fallback| self.resolve(&fallback.value).ok()).map(|found| found.settings()).collect()
    }

    fn unknown(&self, id: &str) -> UnknownModel {
        let list = |keys: Vec<&str>| if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
        UnknownModel {
            id: id.chars().take(80).collect(),
            known: list(self.models.keys().map(String::as_str).collect()),
            providers: list(self.providers.keys().map(String::as_str).collect()),
        }
    }
}

impl ModelEntry {
    /// What is assumed of a model that nobody described: one tool at a time.
    fn of(provider: &str) -> Self {
        Self {
            provider: provider.to_owned(),
            model: None,
            multi_tool: false,
            max_parallel_tools: 1,
            structured_output: false,
            reasoning: false,
            fallbacks: Vec::new(),
            context_window: None,
            max_output: None,
            prompt_variant: None,
            prices: None,
        }
    }
}

impl Resolved {
    /// What a session commits of it.
    pub fn settings(&self) -> ModelSettings {
        ModelSettings {
            id: self.id.clone(),
            multi_tool: self.entry.multi_tool,
            max_parallel_tools: if self.entry.multi_tool { self.entry.max_parallel_tools.max(1) } else { 1 },
            structured_output: self.entry.structured_output,
            reasoning: self.entry.reasoning,
            context_window: self.entry.context_window,
            max_output: self.entry.max_output,
        }
    }
}

impl ProviderEntry {
    /// The provider's key; none where it needs none. A key that is named but not there is an error.
    pub fn api_key(&self) -> Result<Option<Secret>, ConfigError> {
        if let Some(path) = &self.api_key_file {
            let text = std::fs::read_to_string(path)
                .map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?;
            return Ok(Some(Secret::new(text.trim())));
        }
        let Some(name) = &self.api_key_env else { return Ok(None) };
        match env(name).filter(|key| !key.trim().is_empty()) {
            Some(key) => Ok(Some(Secret::new(key.trim()))),
            None => Err(ConfigError::NoSecret(format!("the environment variable {name} is not set"))),
        }
    }
}
