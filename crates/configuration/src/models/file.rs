//! The shape of `models.yaml`, and what makes it refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use contract::AiConfig;
use contract::limits::{ALLOWED_PARAMETERS_MAX, ALTERNATIVES_MAX, BUDGETS_MAX, FALLBACKS_MAX};
use contract::settings::ModelSettings;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_saphyr::{Location, Spanned};

use super::budget::{self, BudgetShape};
use super::entries::{
    Alternative, ModelEntry, ModelsFile, Prices, ProviderEntry, ProviderKind, Quirk, RESERVED_PARAMETERS, Rates,
};
use crate::continuation::ContinuationEntry;
use crate::error::ConfigError;
use crate::paths::Paths;
use crate::secret::Secret;
use crate::text_file::TextFile;
use crate::{shipped, suggest, yaml};

/// Name of the file in the configuration directory.
pub const FILE: &str = shipped::MODELS;

/// Models and who serves them. Keys come from the environment or from a file, never from here.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "models.yaml")]
struct FileShape {
    /// The model of agents that name none.
    #[schemars(with = "Option<String>")]
    default: Option<Spanned<String>>,
    /// Providers by the key that models name.
    providers: BTreeMap<String, ProviderShape>,
    /// Models by their id. A key also matches the ids that begin with it.
    models: BTreeMap<String, ModelShape>,
    /// Spending limits of tenants and agents. If several apply, the most specific one of each period counts.
    #[schemars(with = "Vec<BudgetShape>", length(max = BUDGETS_MAX))]
    budgets: Vec<Spanned<BudgetShape>>,
}

/// One provider, and how requests reach it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "provider", extend("allOf" = [needs("openai_chat", "base_url"), needs("openai_responses", "base_url"), needs("anthropic", "base_url"), needs("gemini", "base_url"), needs("scripted", "script")]))]
struct ProviderShape {
    /// Protocol of the provider.
    #[schemars(with = "ProviderKind")]
    kind: Spanned<ProviderKind>,
    /// Base URL of the provider; needed by all but `scripted`.
    #[serde(default)]
    #[schemars(with = "Option<String>", regex(pattern = "^https?://"))]
    base_url: Option<Spanned<String>>,
    /// The environment variable that holds its key.
    #[serde(default)]
    api_key_env: Option<String>,
    /// A file that holds its key; it is read for each call.
    #[serde(default)]
    api_key_file: Option<PathBuf>,
    /// The header that carries the key as it is, where it is another one than the protocol's: `api-key` of Azure.
    #[serde(default)]
    key_header: Option<String>,
    /// Headers beside the key's.
    #[serde(default)]
    headers: BTreeMap<String, Secret>,
    /// Query parameters of every request: `{api-version: ...}` of Azure.
    #[serde(default)]
    query: BTreeMap<String, String>,
    /// Deviations of the provider from the protocol.
    #[serde(default)]
    #[schemars(extend("uniqueItems" = true))]
    quirks: Vec<Quirk>,
    /// Parameters of every request, in the words of its protocol: `{service_tier: flex}`. A session replaces only those
    /// that it may set.
    #[serde(default)]
    #[schemars(with = "serde_json::Map<String, serde_json::Value>", extend("propertyNames" = unreserved()))]
    parameters: Option<Spanned<serde_json::Map<String, serde_json::Value>>>,
    /// Parameters that sessions may set beside those that are known to be safe for budgets: `[top_k, min_p]`. Their
    /// values are not checked.
    #[serde(default)]
    #[schemars(with = "Vec<String>", length(max = ALLOWED_PARAMETERS_MAX), extend("items" = allowed_name()))]
    allow_parameters: Vec<Spanned<String>>,
    /// Whether parameters of sessions, agents and models that its protocol does not know are left out, instead of
    /// failing the request.
    #[serde(default)]
    drop_unknown_parameters: bool,
    /// Rate limits of the provider for its key, over all gateways.
    #[serde(default)]
    limits: Rates,
    /// Directory in which requests and replies are recorded, a file for each request. A recording contains transcripts,
    /// but no keys.
    #[serde(default)]
    record: Option<PathBuf>,
    /// Recorded file, or a directory of them: the recorded replies replace those of the provider, in order.
    #[serde(default)]
    replay: Option<PathBuf>,
    /// Whether `base_url` names a host whose address is one of a private network. Where the address itself stands
    /// there, or `localhost`, nothing need be said.
    #[serde(default)]
    private_network: bool,
    /// The script, below the configuration directory; needed by `scripted`.
    #[serde(default)]
    script: Option<String>,
}

/// Properties of a model.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "model")]
#[allow(clippy::struct_excessive_bools, reason = "switches that people set one by one")]
struct ModelShape {
    /// Provider that serves it: a key of `providers`.
    #[schemars(with = "String")]
    provider: Spanned<String>,
    /// Its name in the provider's words; the id that was asked for where none is given.
    #[serde(default)]
    model: Option<String>,
    /// Whether it takes several tools in one request and calls several in one reply.
    #[serde(default)]
    multi_tool: bool,
    /// Calls of one reply that run at once.
    #[serde(default)]
    #[schemars(with = "Option<u32>", range(min = 1))]
    max_parallel_tools: Option<Spanned<u32>>,
    /// Whether it answers in a given JSON Schema.
    #[serde(default)]
    structured_output: bool,
    /// Whether it reasons before it answers.
    #[serde(default)]
    reasoning: bool,
    /// Tokens of a request and its reply together.
    #[serde(default)]
    context_window: Option<u64>,
    /// Tokens of one reply.
    #[serde(default)]
    max_output: Option<u64>,
    /// Variant of its prompts: `<name>.<prompt_variant>.md`.
    #[serde(default)]
    prompt_variant: Option<String>,
    /// Prices, for budgets and reported costs.
    #[serde(default)]
    prices: Option<Prices>,
    /// Other providers of the same model, in the order in which they are tried when it is unavailable.
    #[serde(default)]
    #[schemars(with = "Vec<Alternative>", length(max = ALTERNATIVES_MAX))]
    alternatives: Vec<Spanned<Alternative>>,
    /// The id of the model that answers in its place when a request is too long for it.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    context_fallback: Option<Spanned<String>>,
    /// Ids of the models that take its place when it fails, in order; theirs are not followed.
    #[serde(default)]
    #[schemars(with = "Vec<String>", length(max = FALLBACKS_MAX), extend("uniqueItems" = true))]
    fallbacks: Vec<Spanned<String>>,
    /// Continuation settings with it, for agents that do not set them themselves.
    #[serde(default)]
    continuation_config: ContinuationEntry,
    /// Whether `continuation_config` goes over that of the agent, for a model that needs its own.
    #[serde(default)]
    over_agent: bool,
    /// Prompts and requests with it, where agent and session do not say so themselves.
    #[serde(default)]
    #[schemars(with = "AiConfig")]
    ai_config: Option<Spanned<AiConfig>>,
}

/// Condition of a JSON Schema: a provider of this kind requires the field.
fn needs(kind: &str, field: &str) -> serde_json::Value {
    serde_json::json!({
        "if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]},
        "then": {"properties": {field: {"type": "string"}}, "required": [field]}
    })
}

/// A name of a parameter that the gateway writes itself, in a schema's words.
fn reserved() -> serde_json::Value {
    serde_json::json!({"enum": RESERVED_PARAMETERS})
}

fn unreserved() -> serde_json::Value {
    serde_json::json!({"not": reserved()})
}

fn allowed_name() -> serde_json::Value {
    serde_json::json!({"type": "string", "not": reserved()})
}

/// Reads and checks the file.
pub fn load(paths: &Paths) -> Result<ModelsFile, ConfigError> {
    parse(&paths.read(FILE)?)
}

/// The file's JSON Schema.
pub fn schema() -> serde_json::Value {
    crate::schema::of::<FileShape>("models.yaml of ailoop")
}

/// Parses and checks the text of the file.
pub fn parse(file: &TextFile) -> Result<ModelsFile, ConfigError> {
    let (models, mistakes) = read(file)?;
    mistakes.into_iter().next().map_or(Ok(models), Err)
}

/// The mistakes in the values of the file: the first one of each provider and model. The error is one in its shape, for
/// which no value is checked.
pub fn mistakes(file: &TextFile) -> Result<Vec<ConfigError>, ConfigError> {
    read(file).map(|(_, mistakes)| mistakes)
}

fn read(file: &TextFile) -> Result<(ModelsFile, Vec<ConfigError>), ConfigError> {
    let read: FileShape = yaml::parse(file)?;
    let (mut models, mut mistakes) = (ModelsFile::default(), Vec::new());
    // Names of what is there, also of what cannot be used: a mistake is told once.
    let providers: BTreeSet<String> = read.providers.keys().cloned().collect();
    for (name, entry) in read.providers {
        match provider(file, &name, entry) {
            Ok(provider) => _ = models.providers.insert(name, provider),
            Err(error) => mistakes.push(error),
        }
    }
    let mut fallbacks = Vec::new();
    for (id, entry) in read.models {
        fallbacks.push((id.clone(), entry.fallbacks.clone(), entry.context_fallback.clone()));
        match checked_model(file, &providers, &id, entry, &mut models.warnings) {
            Ok(model) => _ = models.models.insert(id, model),
            Err(error) => mistakes.push(error),
        }
    }
    if !mistakes.is_empty() {
        // What refers to entries that cannot be used is looked at when they can.
        return Ok((models, mistakes));
    }
    // Only now is every model known.
    for (id, list, context) in &fallbacks {
        mistakes.extend(check_fallbacks(file, &models, id, list).err());
        mistakes.extend(check_fallbacks(file, &models, id, context.as_slice()).err());
    }
    match budget::check(file, read.budgets) {
        Ok(budgets) => models.budgets = budgets,
        Err(error) => mistakes.push(error),
    }
    if models.budgets.iter().any(|budget| budget.usd.is_some()) {
        let unpriced = models.models.iter().filter(|(_, model)| model.prices.is_none());
        let unpriced: Vec<&str> = unpriced.map(|(id, _)| id.as_str()).collect();
        if !unpriced.is_empty() {
            let list = unpriced.join(", ");
            models
                .warnings
                .push(format!("models without prices are refused where a budget in US dollars applies: {list}"));
        }
    }
    if let Some(default) = read.default {
        match models.resolve(&default.value) {
            Ok(_) => models.default = Some(default.value),
            Err(unknown) => mistakes.push(yaml::at(file, default.referenced, unknown)),
        }
    }
    Ok((models, mistakes))
}

fn checked_model(
    file: &TextFile,
    providers: &BTreeSet<String>,
    id: &str,
    entry: ModelShape,
    warnings: &mut Vec<String>,
) -> Result<ModelEntry, ConfigError> {
    let named = &entry.provider;
    if !providers.contains(&named.value) {
        let suggestion = suggest::did_you_mean(&named.value, providers.iter().map(String::as_str));
        let message = format!("model {id} names the provider {:?}, which is not there{suggestion}", named.value);
        return Err(yaml::at(file, named.referenced, message));
    }
    check_alternatives(file, providers, id, &entry.alternatives)?;
    model(file, id, entry, warnings)
}

fn provider(file: &TextFile, name: &str, entry: ProviderShape) -> Result<ProviderEntry, ConfigError> {
    let refuse = |place: Location, message: &str| Err(yaml::at(file, place, format!("provider {name} {message}")));
    if entry.limits.requests_per_minute == Some(0) || entry.limits.tokens_per_minute == Some(0) {
        return refuse(entry.kind.referenced, "has a limit of 0 per minute: leave it out, or set at least 1");
    }
    match entry.kind.value {
        ProviderKind::OpenaiChat | ProviderKind::OpenaiResponses | ProviderKind::Anthropic | ProviderKind::Gemini => {
            let url = entry.base_url.as_ref().map_or("", |url| url.value.as_str());
            if entry.replay.is_none() && !url.starts_with("http://") && !url.starts_with("https://") {
                let place = entry.base_url.as_ref().map_or(entry.kind.referenced, |url| url.referenced);
                return refuse(place, "needs a base_url that begins with http:// or https://");
            }
        }
        ProviderKind::Scripted if entry.script.is_none() => return refuse(entry.kind.referenced, "needs a script"),
        ProviderKind::Scripted => {}
    }
    if entry.allow_parameters.len() > ALLOWED_PARAMETERS_MAX {
        let message = format!("has more than {ALLOWED_PARAMETERS_MAX} allow_parameters");
        return refuse(entry.kind.referenced, &message);
    }
    let own = |name: &str| RESERVED_PARAMETERS.contains(&name);
    for allowed in &entry.allow_parameters {
        if own(&allowed.value) {
            let message = format!("cannot allow the parameter {:?}: ailoop writes it itself", allowed.value);
            return refuse(allowed.referenced, &message);
        }
    }
    if let Some(parameters) = &entry.parameters
        && let Some(name) = parameters.value.keys().find(|name| own(name))
    {
        let message = format!("cannot set the parameter {name:?}: ailoop writes it itself");
        return refuse(parameters.referenced, &message);
    }
    Ok(ProviderEntry {
        kind: entry.kind.value,
        base_url: entry.base_url.map(|url| url.value.trim_end_matches('/').to_owned()),
        api_key_env: entry.api_key_env,
        api_key_file: entry.api_key_file,
        key_header: entry.key_header,
        headers: entry.headers,
        query: entry.query,
        quirks: entry.quirks.into_iter().collect(),
        parameters: entry.parameters.map(|parameters| parameters.value).unwrap_or_default(),
        allow_parameters: entry.allow_parameters.into_iter().map(|allowed| allowed.value).collect(),
        drop_unknown_parameters: entry.drop_unknown_parameters,
        limits: entry.limits,
        record: entry.record,
        replay: entry.replay,
        private_network: entry.private_network,
        script: entry.script,
    })
}

fn model(file: &TextFile, id: &str, entry: ModelShape, warnings: &mut Vec<String>) -> Result<ModelEntry, ConfigError> {
    if let Some(tools) = entry.max_parallel_tools.as_ref().filter(|tools| tools.value == 0) {
        return Err(yaml::at(file, tools.referenced, format!("model {id}: max_parallel_tools must be at least 1")));
    }
    let parallel = entry.max_parallel_tools.filter(|_| entry.multi_tool).map_or(1, |tools| tools.value);
    let settings = ModelSettings {
        id: String::new(),
        multi_tool: entry.multi_tool,
        max_parallel_tools: parallel,
        structured_output: entry.structured_output,
        reasoning: entry.reasoning,
        context_window: entry.context_window,
        max_output: entry.max_output,
        requests: None,
    };
    Ok(ModelEntry {
        provider: entry.provider.value,
        model: entry.model,
        settings,
        prompt_variant: entry.prompt_variant,
        prices: entry.prices,
        alternatives: entry.alternatives.into_iter().map(|other| other.value).collect(),
        context_fallback: entry.context_fallback.map(|id| id.value),
        fallbacks: entry.fallbacks.into_iter().map(|fallback| fallback.value).collect(),
        continuation: entry.continuation_config.check(file, warnings)?,
        is_over_agent: entry.over_agent,
        ai_config: crate::continuation::ai_config(file, entry.ai_config)?,
    })
}

/// Every alternative is at a provider that is there.
fn check_alternatives(
    file: &TextFile,
    providers: &BTreeSet<String>,
    id: &str,
    list: &[Spanned<Alternative>],
) -> Result<(), ConfigError> {
    for (index, other) in list.iter().enumerate() {
        let provider = &other.value.provider;
        if index >= ALTERNATIVES_MAX {
            let message = format!("model {id} has {} alternatives; at most {ALTERNATIVES_MAX}", list.len());
            return Err(yaml::at(file, other.referenced, message));
        }
        if !providers.contains(provider) {
            let message = format!("model {id} names the provider {provider:?} as an alternative, which is not there");
            return Err(yaml::at(file, other.referenced, message));
        }
    }
    Ok(())
}

/// Every fallback is a model that can be found, another one, and named once.
fn check_fallbacks(
    file: &TextFile,
    models: &ModelsFile,
    id: &str,
    list: &[Spanned<String>],
) -> Result<(), ConfigError> {
    for (index, fallback) in list.iter().enumerate() {
        let refuse = |message: String| Err(yaml::at(file, fallback.referenced, message));
        let name = fallback.value.as_str();
        if index >= FALLBACKS_MAX {
            return refuse(format!("model {id} has {} fallbacks; at most {FALLBACKS_MAX}", list.len()));
        }
        if name == id {
            return refuse(format!("model {id} is its own fallback; name another model"));
        }
        if list.iter().take(index).any(|earlier| earlier.value == name) {
            return refuse(format!("model {id} names the fallback {name} twice"));
        }
        if let Err(unknown) = models.resolve(name) {
            return refuse(format!("model {id} cannot fall back: {unknown}"));
        }
    }
    Ok(())
}
