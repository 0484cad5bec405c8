//! The catalog of agents, models and prompts, which replies to requests to compose.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use configuration::ConfigError;
use configuration::Paths;
use configuration::continuation::{self, Layers, SourcedSettings};
use configuration::files::Pass;
use configuration::models::{self, ModelsFile, Resolved};
use contract::compose::{AgentsReply, ComposeReply, ComposeRequest, Composed, KnownModel};
use contract::fleet::ConfigurationMark;
use contract::settings::{AgentSettings, ModelRequests, ModelSettings};
use contract::tool::sha256_hex;
use contract::trace::TraceContext;
use contract::{AiConfig, ErrorCode, TenantId};
use service::clock::{Clock as _, SystemClock};
use service::health::Readiness;
use service::reload::Reload;

use crate::agents::{self, Agent, Agents, Tenant};
use crate::compose::{ComposeInput, compose};
use crate::config::ComposerConfig;
use crate::features;
use crate::library::Library;
use crate::placeholders::PROMPT_BYTES_MAX;
use crate::proposed_model::ProposedModel;

/// Longest serialised reply in bytes, below the default limit of nats-server. A prompt of control characters takes six
/// bytes for each. A reply that cannot be sent would block all commands of the session.
const REPLY_BYTES_MAX: usize = 960 << 10;

/// Agents, models and prompts that were read together.
#[derive(Debug)]
pub struct Catalog {
    agents: Agents,
    /// Origin of `agents.yaml`: its path, or the shipped file.
    agents_origin: String,
    models: ModelsFile,
    /// Origin of `models.yaml`: its path, or the shipped file.
    models_origin: String,
    library: Library,
    features: Vec<String>,
    /// The default model of the composer's own settings.
    configured_model: Option<String>,
    proposed_model: ProposedModel,
    mark: ConfigurationMark,
}

impl Catalog {
    /// Reads all files. The error names file, line and column.
    pub fn read(config: &ComposerConfig) -> Result<Self, ConfigError> {
        Self::read_in(&Pass::default(), config)
    }

    /// Whether the files have a default model, for agents that name none.
    pub fn has_default_model(&self) -> bool {
        self.configured_model.is_some() || self.models.default.is_some()
    }

    /// Uses a model for agents that name none if the files have no default model, as if gateways proposed it.
    #[must_use]
    pub fn with_stand_in_model(self, model: &str) -> Self {
        self.proposed_model.set(Some(model.to_owned()));
        self
    }

    /// Reads all files of a pass before any is checked, so that the pass knows every file even if one has an error.
    fn read_in(pass: &Pass, config: &ComposerConfig) -> Result<Self, ConfigError> {
        let mut paths = Paths::find_in(pass, config.config_dir.as_deref())?;
        if let Some(dir) = &config.prompts_dir {
            paths.prefer_prompts(dir)?;
        }
        let (agents_file, models_file) = (paths.read(agents::FILE)?, paths.read(models::FILE)?);
        let library = Library::read(&paths)?;
        let features = config.read_features(pass)?;
        let (agents, models) = (agents::parse(&agents_file)?, models::parse(&models_file)?);
        for layer in agents.layers() {
            models.check_judge(&agents_file, layer)?;
        }
        for entry in models.models.values() {
            agents.templates().knows(&models_file, &entry.continuation)?;
            models.check_judge(&models_file, &entry.continuation)?;
        }
        let configured_model = config.default_model.clone().filter(|model| !model.is_empty());
        let texts = [(agents::FILE, agents_file.text.as_str()), (models::FILE, models_file.text.as_str())];
        let texts = texts.into_iter().chain(library.texts());
        let fingerprint = fingerprint(texts, &features, configured_model.as_deref());
        let mark = ConfigurationMark { fingerprint, since: SystemClock.now() };
        let catalog = Self {
            agents,
            agents_origin: agents_file.origin,
            models,
            models_origin: models_file.origin,
            library,
            features,
            configured_model,
            proposed_model: ProposedModel::default(),
            mark,
        };
        for warning in catalog.warnings() {
            tracing::warn!(warning, "configuration accepted with a warning");
        }
        Ok(catalog)
    }

    /// Reads all files, and reads them again when one of them changes.
    pub fn watch(config: ComposerConfig, readiness: Readiness) -> Result<Arc<Reload<Self>>, ConfigError> {
        let proposed_model = ProposedModel::default();
        Reload::start("composer", readiness, move |pass, current: Option<&Self>| {
            let mut read = Self { proposed_model: proposed_model.clone(), ..Self::read_in(pass, &config)? };
            // A file that was touched is no change.
            if let Some(current) = current.filter(|current| current.mark.fingerprint == read.mark.fingerprint) {
                read.mark = current.mark.clone();
            }
            Ok(read)
        })
    }

    /// Returns the mark of this configuration: its fingerprint, and the time since which it is in use.
    pub(crate) fn mark(&self) -> ConfigurationMark {
        self.mark.clone()
    }

    /// Returns the model that gateways propose; the same for all catalogs that follow the files.
    pub(crate) fn proposed_model(&self) -> &ProposedModel {
        &self.proposed_model
    }

    /// The model of agents that name none.
    fn default_model(&self) -> Option<String> {
        let named = self.configured_model.clone().or_else(|| self.models.default.clone());
        named.or_else(|| self.proposed_model.get())
    }

    /// Names what chooses the model of agents that name none.
    pub(crate) fn name_default_model(&self) -> String {
        match (&self.configured_model, &self.models.default) {
            (Some(_), _) => "composer.default_model".to_owned(),
            (None, Some(_)) => format!("default ({})", self.models_origin),
            (None, None) => "no file names a model: gateways propose one by their keys".to_owned(),
        }
    }

    /// Returns the origins of `agents.yaml` and `models.yaml`.
    pub(crate) fn origins(&self) -> (&str, &str) {
        (&self.agents_origin, &self.models_origin)
    }

    /// The agents of `agents.yaml`.
    pub fn agents(&self) -> &Agents {
        &self.agents
    }

    /// Warnings about agents and models that are accepted.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.agents.warnings.iter().chain(&self.models.warnings).map(String::as_str)
    }

    /// Composes the reply to a serialised request. Returns `None` if the reply cannot be serialised. The span is a child
    /// of `trace`.
    pub fn compose_bytes(&self, request: &Bytes, trace: Option<TraceContext>) -> Option<Bytes> {
        let reply = match serde_json::from_slice(request) {
            Ok(parsed) => self.compose_in_span(&parsed, trace),
            Err(error) => ComposeReply::Refused { code: ErrorCode::BadRequest, message: error.to_string() },
        };
        let mut body = serde_json::to_vec(&reply).ok()?;
        if body.len() > REPLY_BYTES_MAX {
            let message = format!(
                "the composed prompt has {} bytes as JSON, {REPLY_BYTES_MAX} are allowed; shorten it",
                body.len()
            );
            body = serde_json::to_vec(&ComposeReply::Refused { code: ErrorCode::TooLarge, message }).ok()?;
        }
        Some(Bytes::from(body))
    }

    /// Lists the agents by the names under which others address them, and the described models.
    pub fn list_known(&self) -> AgentsReply {
        let default_model = self.default_model();
        let known = |id: &String| {
            let model = self.models.resolve(id).ok()?;
            let is_default = default_model.as_ref() == Some(id);
            let limits = model.provider_entry.limits;
            Some(KnownModel {
                settings: model.settings(),
                provider: model.provider,
                is_default,
                upstream: model.upstream,
                requests_per_minute: limits.requests_per_minute,
                tokens_per_minute: limits.tokens_per_minute,
            })
        };
        AgentsReply { agents: self.agents.addresses(), models: self.models.models.keys().filter_map(known).collect() }
    }

    /// Composes the reply to a request. A refusal tells what to do.
    pub fn compose(&self, request: &ComposeRequest) -> ComposeReply {
        self.compose_in_span(request, None)
    }

    fn compose_in_span(&self, request: &ComposeRequest, trace: Option<TraceContext>) -> ComposeReply {
        let agent = request.agent.as_ref().map_or("default", |agent| agent.as_str());
        let span = compose_span(agent, trace);
        let _entered = span.enter();
        match self.try_compose(request) {
            Ok(composed) => {
                let Composed { fingerprint, prompt, components, warnings, .. } = &composed;
                telemetry::span::composed(&span, fingerprint, prompt.len(), components.len());
                for warning in warnings {
                    tracing::warn!(agent = %composed.agent.id, warning, "prompt composed with a warning");
                }
                ComposeReply::Composed(Box::new(composed))
            }
            Err((code, message)) => {
                telemetry::span::failed(&span, code.as_str());
                ComposeReply::Refused { code, message }
            }
        }
    }

    /// Finds the entries of the files that a request is about.
    pub(crate) fn find_entries<'a>(&'a self, request: &'a ComposeRequest) -> Result<Entries<'a>, (ErrorCode, String)> {
        static NO_TENANT: LazyLock<Tenant> = LazyLock::new(Tenant::default);
        let agent = self.agents.find(request.agent.as_ref()).map_err(|why| (ErrorCode::UnknownAgent, why))?;
        let model = self.resolve_model(request, agent).map_err(|why| (ErrorCode::UnknownModel, why))?;
        let tenant = self.agents.tenant(&request.tenant).unwrap_or(&NO_TENANT);
        Ok(Entries { agent, model, tenant, tenant_id: &request.tenant })
    }

    pub(crate) fn try_compose(&self, request: &ComposeRequest) -> Result<Composed, (ErrorCode, String)> {
        let entries = self.find_entries(request)?;
        let Entries { agent, model, tenant, .. } = &entries;
        features::check_exist(&self.library, &request.named_features)
            .map_err(|why| (ErrorCode::UnknownFeature, why))?;
        let model_settings = model.settings();
        let settings = AgentSettings {
            id: agent.id.clone(),
            name: agent.name.clone(),
            continuation: continuation::resolve(&entries.stack(self, request)?),
            tools: agent.tools.clone(),
            approvals: agent.approvals.clone(),
        };
        if let Some(judge) = request.judge.as_deref().filter(|judge| !judge.is_empty()) {
            let unknown = |why| (ErrorCode::UnknownModel, format!("continuation.judge: {why}"));
            self.models.resolve(judge).map_err(unknown)?;
        }
        let family = model.entry.prompt_variant.as_deref();
        let ai_config = entries.merge_ai_config(&model.entry.ai_config, request);
        // A fallback has its own parameters: its provider may use other names.
        let fallback = |fallback: &Resolved| {
            let AiConfig { parameters, tool_choice, streaming, .. } =
                entries.merge_ai_config(&fallback.entry.ai_config, request);
            let requests = Some(Box::new(ModelRequests { parameters, tool_choice, streaming }));
            ModelSettings { requests, ..fallback.settings() }
        };
        ai_config.check().map_err(|why| (ErrorCode::BadRequest, format!("ai_config.{why}")))?;
        let features = &self.features;
        let input = ComposeInput {
            agent,
            tenant,
            settings: &settings,
            model: &model_settings,
            family,
            features,
            request,
            ai_config: &ai_config,
        };
        let prompt = compose(&self.library, &input);
        if prompt.text.len() > PROMPT_BYTES_MAX {
            let why = format!("the prompt has {} bytes, {PROMPT_BYTES_MAX} are allowed", prompt.text.len());
            return Err((ErrorCode::TooLarge, why));
        }
        let mut warnings = prompt.warnings;
        let names_judge = agent.continuation.judge().is_some() || tenant.continuation.judge().is_some();
        if names_judge && settings.continuation.require_explicit_signal {
            let why = "continuation_config.judge is never asked: require_explicit_signal ends what it would decide";
            warnings.push(why.to_owned());
        }
        // Without the instructions to continue, an agent does not continue by itself.
        let mut settings = settings;
        settings.continuation.enabled &= prompt.has_continuation;
        Ok(Composed {
            prompt: prompt.text,
            fingerprint: prompt.fingerprint,
            components: prompt.components,
            warnings,
            agent: settings,
            model: model_settings,
            // The session does not need the inputs of the prompt.
            ai_config: Some(AiConfig {
                parameters: ai_config.parameters,
                tool_choice: ai_config.tool_choice,
                ..AiConfig::default()
            }),
            streaming: ai_config.streaming,
            fallbacks: self.models.fallbacks(model).iter().map(fallback).collect(),
        })
    }

    /// Resolves the model of the request, else of the agent, else the default.
    fn resolve_model(&self, request: &ComposeRequest, agent: &Agent) -> Result<Resolved, String> {
        let named = named_model(request, agent).map(str::to_owned);
        let Some(id) = named.or_else(|| self.default_model()) else {
            return Err("no model is named: give one with the request, or to the agent in agents.yaml, or set \
                        `default` in models.yaml or AILOOP__COMPOSER__DEFAULT_MODEL, or give the gateways a key such \
                        as OPENAI_API_KEY; `rehearsal` needs no key"
                .to_owned());
        };
        self.models.resolve(&id).map_err(|unknown| unknown.to_string())
    }
}

/// The entries of the files that a request is about.
pub(crate) struct Entries<'a> {
    pub(crate) agent: &'a Agent,
    pub(crate) model: Resolved,
    pub(crate) tenant: &'a Tenant,
    pub(crate) tenant_id: &'a TenantId,
}

impl Entries<'_> {
    /// The continuation settings below those of the session, lowest first.
    pub(crate) fn stack<'a>(
        &'a self,
        catalog: &'a Catalog,
        request: &'a ComposeRequest,
    ) -> Result<Vec<SourcedSettings<'a>>, (ErrorCode, String)> {
        let layers = Layers {
            model: &self.model.entry.continuation,
            is_model_over_agent: self.model.entry.is_over_agent,
            agent: &self.agent.continuation,
            tenant: &self.tenant.continuation,
            session_template: request.template.as_deref(),
        };
        let stack = layers.stack(catalog.agents.templates());
        stack.map_err(|why| (ErrorCode::BadRequest, format!("continuation.template: {why}")))
    }

    /// The `ai_config` of the session over those of tenant, agent and a model.
    pub(crate) fn merge_ai_config(&self, of_model: &AiConfig, request: &ComposeRequest) -> AiConfig {
        request.ai_config.over(self.tenant.ai_config.over(self.agent.ai_config.over(of_model.clone())))
    }
}

/// Digest of all that decides what a composer replies.
fn fingerprint<'a>(
    texts: impl Iterator<Item = (&'a str, &'a str)>,
    features: &[String],
    default_model: Option<&str>,
) -> String {
    let texts: Vec<_> = texts.collect();
    sha256_hex(format!("{texts:?}{features:?}{default_model:?}").as_bytes())
}

/// The model of the request, else of the agent.
pub(crate) fn named_model<'a>(request: &'a ComposeRequest, agent: &'a Agent) -> Option<&'a str> {
    let requested = request.model.as_deref().filter(|model| !model.is_empty() && *model != "default");
    requested.or(agent.model.as_deref())
}

/// The span of a composition for a turn, with the agent as the request names it. A composition for no turn has none: an
/// edge tries an agent, or a test.
fn compose_span(agent: &str, turn: Option<TraceContext>) -> tracing::Span {
    let Some(turn) = turn.filter(|turn| turn.is_sampled && !turn.is_beginning()) else { return tracing::Span::none() };
    let span = telemetry::span::compose(agent);
    telemetry::trace::set_parent(&span, turn);
    span
}
