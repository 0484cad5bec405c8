//! Answers what a session is made of: the agent, the model and the prompt.

use std::sync::Arc;

use bytes::Bytes;
use contract::compose::{AgentsReply, ComposeReply, ComposeRequest, Composed, KnownModel};
use contract::settings::{AgentSettings, ModelRequests, ModelSettings};
use contract::{AiConfig, ErrorCode};
use service::config::ConfigError;
use service::continuation;
use service::files::Pass;
use service::health::Readiness;
use service::models::{self, ModelsFile, Resolved};
use service::paths::Paths;
use service::reload::Reload;

use crate::Config;
use crate::agents::{self, Agent, Agents, Tenant};
use crate::answers::{Answer, Answers};
use crate::compose::{Order, compose};
use crate::features;
use crate::library::Library;

/// Bytes of a composed prompt: an answer must fit into one message of a server with its usual limits.
pub(crate) const PROMPT_BYTES_MAX: usize = 512 << 10;
/// Bytes of an answer, below what nats-server takes where nobody configured it otherwise: control characters take six bytes
/// each. Whoever asks would wait for one that cannot be sent, and with it all commands of the session.
const ANSWER_BYTES_MAX: usize = 960 << 10;

/// Agents, models and prompts, read as one set.
#[derive(Debug)]
pub struct Book {
    agents: Agents,
    models: ModelsFile,
    library: Library,
    features: Vec<String>,
    default_model: Option<String>,
    answers: Answers,
}

impl Book {
    /// Reads everything; the error names file, line and column.
    pub fn read(config: &Config) -> Result<Self, ConfigError> {
        Self::read_in(&Pass::default(), config)
    }

    /// Whether agents that name no model have one.
    pub fn has_default_model(&self) -> bool {
        self.default_model.is_some()
    }

    /// As [`Book::read`], as a part of a pass: everything is read before the first mistake is looked for, so that the pass
    /// knows every file whatever is wrong with one.
    fn read_in(pass: &Pass, config: &Config) -> Result<Self, ConfigError> {
        let mut paths = Paths::find_in(pass, config.config_dir.as_deref())?;
        if let Some(dir) = &config.prompts_dir {
            paths.prefer_prompts(dir)?;
        }
        let (agents, models) = (paths.read(agents::FILE)?, paths.read(models::FILE)?);
        let library = Library::read(&paths)?;
        let features = config.features_now(pass)?;
        let (agents_file, models_file) = (agents, models);
        let (agents, models) = (agents::parse(&agents_file)?, models::parse(&models_file)?);
        for layer in agents.layers() {
            layer.judge_is_known(&agents_file, &models)?;
        }
        for entry in models.models.values() {
            agents.templates().knows(&models_file, &entry.continuation)?;
            entry.continuation.judge_is_known(&models_file, &models)?;
        }
        let default_model = config.default_model.clone().filter(|model| !model.is_empty());
        let default_model = default_model.or_else(|| models.default.clone());
        let book = Self { agents, models, library, features, default_model, answers: Answers::default() };
        for warning in book.warnings() {
            tracing::warn!(warning, "odd, but used");
        }
        Ok(book)
    }

    /// Reads everything, and again whenever a file of it changes.
    pub fn follow(config: Config, readiness: Readiness) -> Result<Arc<Reload<Self>>, ConfigError> {
        Reload::start("composer", readiness, move |pass, _| Self::read_in(pass, &config))
    }

    /// The agents.
    pub fn agents(&self) -> &Agents {
        &self.agents
    }

    /// What is odd about agents and models, but not refused.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.agents.warnings.iter().chain(&self.models.warnings).map(String::as_str)
    }

    /// Answers a request as it came with an answer as it goes; one that came before with the answer of then. None where
    /// the answer cannot be written. The span stands under `traceparent`.
    pub fn answer_bytes(&self, request: &Bytes, traceparent: Option<&str>) -> Option<Bytes> {
        if let Some(kept) = self.answers.get(request) {
            let span = telemetry::span::compose(&kept.agent);
            set_parent(&span, traceparent);
            telemetry::span::composed(&span, &kept.fingerprint, kept.prompt_bytes, kept.components);
            return Some(kept.body);
        }
        let parsed: ComposeRequest = match serde_json::from_slice(request) {
            Ok(parsed) => parsed,
            Err(error) => {
                let refused = ComposeReply::Refused { code: ErrorCode::BadRequest, message: error.to_string() };
                return serde_json::to_vec(&refused).ok().map(Bytes::from);
            }
        };
        let reply = self.answer_under(&parsed, traceparent);
        let body = Bytes::from(serde_json::to_vec(&reply).ok()?);
        if body.len() > ANSWER_BYTES_MAX {
            let message = format!(
                "the composed prompt has {} bytes as JSON, {ANSWER_BYTES_MAX} are allowed; shorten it",
                body.len()
            );
            let refused = ComposeReply::Refused { code: ErrorCode::TooLarge, message };
            return serde_json::to_vec(&refused).ok().map(Bytes::from);
        }
        if let ComposeReply::Composed(composed) = reply {
            let answer = Answer {
                body: body.clone(),
                agent: named(&parsed).to_owned(),
                fingerprint: composed.fingerprint,
                prompt_bytes: composed.prompt.len(),
                components: composed.components.len(),
            };
            self.answers.keep(request, answer);
        }
        Some(body)
    }

    /// Every agent, as others address it, and every model that is described.
    pub fn known(&self) -> AgentsReply {
        let known = |id: &String| {
            let model = self.models.resolve(id).ok()?;
            let is_default = self.default_model.as_ref() == Some(id);
            Some(KnownModel { settings: model.settings(), provider: model.provider, is_default })
        };
        AgentsReply { agents: self.agents.addresses(), models: self.models.models.keys().filter_map(known).collect() }
    }

    /// Answers a request; a refusal says what to do.
    pub fn answer(&self, request: &ComposeRequest) -> ComposeReply {
        self.answer_under(request, None)
    }

    fn answer_under(&self, request: &ComposeRequest, traceparent: Option<&str>) -> ComposeReply {
        let span = telemetry::span::compose(named(request));
        set_parent(&span, traceparent);
        let _entered = span.enter();
        match self.composed(request) {
            Ok(composed) => {
                let Composed { fingerprint, prompt, components, warnings, .. } = &composed;
                telemetry::span::composed(&span, fingerprint, prompt.len(), components.len());
                for warning in warnings {
                    tracing::warn!(agent = %composed.agent.id, warning, "odd in a prompt");
                }
                ComposeReply::Composed(Box::new(composed))
            }
            Err((code, message)) => {
                telemetry::span::failed(&span, code.as_str());
                ComposeReply::Refused { code, message }
            }
        }
    }

    fn composed(&self, request: &ComposeRequest) -> Result<Composed, (ErrorCode, String)> {
        let agent = self.agents.find(request.agent.as_ref()).map_err(|why| (ErrorCode::UnknownAgent, why))?;
        let model = self.model(request, agent).map_err(|why| (ErrorCode::UnknownModel, why))?;
        features::check(&self.library, &request.named_features).map_err(|why| (ErrorCode::UnknownFeature, why))?;
        let of_model = model.settings();
        let nothing = Tenant::default();
        let tenant = self.agents.tenant(&request.tenant).unwrap_or(&nothing);
        let layers = [&model.entry.continuation, &agent.continuation, &tenant.continuation];
        let continuation = continuation::resolve(self.agents.templates(), request.template.as_deref(), &layers)
            .map_err(|why| (ErrorCode::BadRequest, format!("continuation.template: {why}")))?;
        let settings = AgentSettings {
            id: agent.id.clone(),
            name: agent.name.clone(),
            continuation,
            tools: agent.tools.clone(),
            approvals: agent.approvals.clone(),
        };
        if let Some(judge) = request.judge.as_deref().filter(|judge| !judge.is_empty()) {
            let unknown = |why| (ErrorCode::UnknownModel, format!("continuation.judge: {why}"));
            self.models.resolve(judge).map_err(unknown)?;
        }
        let family = model.entry.prompt_variant.as_deref();
        let laid =
            |of_model: &AiConfig| request.ai_config.over(tenant.ai_config.over(agent.ai_config.over(of_model.clone())));
        let ai_config = laid(&model.entry.ai_config);
        // Its own parameters in the place of the model's: they may be in the words of another provider.
        let fallback = |fallback: &Resolved| {
            let AiConfig { parameters, tool_choice, .. } = laid(&fallback.entry.ai_config);
            let requests = Some(Box::new(ModelRequests { parameters, tool_choice }));
            ModelSettings { requests, ..fallback.settings() }
        };
        ai_config.check().map_err(|why| (ErrorCode::BadRequest, format!("ai_config.{why}")))?;
        let features = &self.features;
        let order = Order {
            agent,
            tenant,
            settings: &settings,
            model: &of_model,
            family,
            features,
            request,
            ai_config: &ai_config,
        };
        let prompt = compose(&self.library, &order);
        if prompt.text.len() > PROMPT_BYTES_MAX {
            let why = format!("the prompt has {} bytes, {PROMPT_BYTES_MAX} are allowed", prompt.text.len());
            return Err((ErrorCode::TooLarge, why));
        }
        let mut warnings = prompt.warnings;
        let names_judge = agent.continuation.names_judge() || tenant.continuation.names_judge();
        if names_judge && settings.continuation.require_explicit_signal {
            let why = "continuation_config.judge is never asked: require_explicit_signal ends what it would decide";
            warnings.push(why.to_owned());
        }
        // Whoever is not told how to go on does not go on by itself.
        let mut settings = settings;
        settings.continuation.enabled &= prompt.continues;
        Ok(Composed {
            prompt: prompt.text,
            fingerprint: prompt.fingerprint,
            components: prompt.components,
            warnings,
            agent: settings,
            model: of_model,
            // The prompt is made; what it was made of need not go along.
            ai_config: Some(AiConfig {
                parameters: ai_config.parameters,
                tool_choice: ai_config.tool_choice,
                ..AiConfig::default()
            }),
            fallbacks: self.models.fallbacks(&model).iter().map(fallback).collect(),
        })
    }

    /// The request's model, else the agent's, else the default.
    fn model(&self, request: &ComposeRequest, agent: &Agent) -> Result<Resolved, String> {
        let asked = request.model.as_deref().filter(|model| !model.is_empty() && *model != "default");
        let Some(id) = asked.or(agent.model.as_deref()).or(self.default_model.as_deref()) else {
            return Err("no model is named: give one with the request, or to the agent in agents.yaml, or set \
                        `default` in models.yaml or AILOOP__COMPOSER__DEFAULT_MODEL; `rehearsal` needs no key"
                .to_owned());
        };
        self.models.resolve(id).map_err(|unknown| unknown.to_string())
    }
}

fn set_parent(span: &tracing::Span, traceparent: Option<&str>) {
    if let Some(traceparent) = traceparent {
        telemetry::trace::set_parent(span, traceparent);
    }
}

/// The agent, in the words of the request.
fn named(request: &ComposeRequest) -> &str {
    request.agent.as_ref().map_or("default", |agent| agent.as_str())
}
