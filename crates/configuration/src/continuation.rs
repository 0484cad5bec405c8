//! `continuation_config` of models, agents and tenants: one layer each, and the settings that the layers come to.

use std::collections::BTreeMap;

use contract::AiConfig;
use contract::command::ContinuationOverride;
use contract::limits::{ITERATIONS_MAX, MODEL_RETRIES_LIMIT, TURN_MAX};
use contract::settings::{ContinuationSettings, LimitAction, LimitsOverride, OnError, Prune};
use reply::Patterns;
use schemars::{JsonSchema, Schema};
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::{Location, Spanned};

use crate::error::ConfigError;
use crate::text_file::TextFile;
use crate::{schema, suggest, yaml};

/// Outside of these a number of steps is odd.
const ITERATIONS_USUAL: std::ops::RangeInclusive<u32> = 1..=20;
/// Outside of these a turn's seconds are odd.
const TIMEOUT_USUAL: std::ops::RangeInclusive<u64> = 60..=3_600;

/// Entry `continuation_config` as it stands in a file.
#[derive(Debug, Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(
    rename = "continuation_config",
    description = "How the loop goes on. What is left out is as the layer below has it.",
    transform = with_alias
)]
pub struct ContinuationEntry {
    /// A named bundle of settings: one of `continuation_templates` of agents.yaml, `multi_step_tool_work` or
    /// `plain_words`. It goes below the fields beside it. That of a tenant also goes over all settings of agents.
    #[schemars(with = "Option<String>")]
    template: Option<Spanned<String>>,
    /// Whether the loop goes on by itself at all; otherwise a reply without tool calls ends its turn.
    enabled: Option<bool>,
    /// Whether a reply without tool calls and without a signal ends the turn, patterns unread.
    require_explicit_signal: Option<bool>,
    /// Steps of a turn.
    #[schemars(with = "Option<u32>", range(min = 1, max = ITERATIONS_MAX))]
    max_iterations: Option<Spanned<u32>>,
    /// Seconds of a turn, pauses not counted.
    #[schemars(with = "Option<u64>", range(min = 1, max = TURN_MAX.as_secs()))]
    timeout: Option<Spanned<u64>>,
    /// Whether a reply that was cut at the output limit is continued.
    continue_on_length: Option<bool>,
    /// Regular expressions, case-insensitive, that mean "go on"; [] means none.
    #[serde(alias = "patterns")]
    #[schemars(with = "Option<Vec<String>>", length(max = reply::PATTERNS_MAX))]
    continuation_patterns: Option<Spanned<Vec<Spanned<String>>>>,
    /// Regular expressions, case-insensitive, that mean "done"; of all matches the one that ends last counts, and []
    /// means none.
    #[schemars(with = "Option<Vec<String>>", length(max = reply::PATTERNS_MAX))]
    termination_patterns: Option<Spanned<Vec<Spanned<String>>>>,
    /// Whether the words of a reply decide where no pattern matches: an announcement of work goes on, a question to the
    /// user or a "done" ends the turn. Only where no explicit signal is required.
    detect_intent: Option<bool>,
    /// Least confidence, 0 to 1, of a signal whose reply states one. A TERMINATE below it takes one more step, in which
    /// the model checks its work; after a CONTINUE below it the model is told to find out or to ask.
    #[schemars(with = "Option<f64>", range(min = 0, max = 1))]
    confidence_min: Option<Spanned<f64>>,
    /// The model that is asked where neither a signal nor a pattern nor the words of a reply decide; empty: none. Only
    /// where no explicit signal is required.
    #[schemars(with = "Option<String>")]
    judge: Option<Spanned<String>>,
    /// Limits of a turn beside steps and time. Each limit counts by itself: an agent that changes one keeps the others
    /// of its model.
    limits: Option<LimitsOverride>,
    /// Action at a limit: the model answers the user in one last step without tools, the turn ends at once, or a person
    /// is asked.
    #[schemars(schema_with = "schema::words_or_none::<LimitAction>")]
    on_limit: Option<LimitAction>,
    /// Action after a model call has failed for good.
    #[schemars(schema_with = "schema::words_or_none::<OnError>")]
    on_error: Option<OnError>,
    /// Most retries in a row of a model call that fails with a temporary error.
    #[schemars(with = "Option<u32>", range(max = MODEL_RETRIES_LIMIT))]
    retries: Option<Spanned<u32>>,
    /// Treatment of the oldest turns when the transcript outgrows the model's window.
    #[schemars(schema_with = "schema::words_or_none::<Prune>")]
    prune: Option<Prune>,
}

/// Adds a field that has an alias under the alias too: the derived code does not see aliases.
fn with_alias(schema: &mut Schema) {
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut)
        && let Some(patterns) = fields.get("continuation_patterns").cloned()
    {
        fields.insert("patterns".to_owned(), patterns);
    }
}

/// Settings of one entry of a file. A setting that it leaves out is left to the layers below.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Layer {
    /// Its own fields, without the template.
    fields: ContinuationOverride,
    template: Option<Spanned<String>>,
    /// Place of the judge in its file.
    judge_place: Option<Location>,
}

/// Bundles of settings by name: those that are built in, and those of `continuation_templates`.
#[derive(Debug, Clone, PartialEq)]
pub struct Templates {
    settings: BTreeMap<String, ContinuationOverride>,
    /// Templates of the file, as it states them.
    layers: Vec<Layer>,
}

impl Default for Templates {
    fn default() -> Self {
        let settings =
            reply::TEMPLATES.iter().map(|template| (template.name.to_owned(), template.settings())).collect();
        Self { settings, layers: Vec::new() }
    }
}

impl Templates {
    /// Adds those of a file, which may begin with one that is built in. What is wrong with one is added to `mistakes`.
    pub fn add(
        &mut self,
        file: &TextFile,
        entries: BTreeMap<String, Spanned<ContinuationEntry>>,
        warnings: &mut Vec<String>,
        mistakes: &mut Vec<ConfigError>,
    ) {
        let built_in = Self::default();
        for (name, entry) in entries {
            match built_in.checked(file, &name, entry, warnings) {
                Ok((layer, settings)) => {
                    self.layers.push(layer);
                    self.settings.insert(name, settings);
                }
                Err(mistake) => mistakes.push(mistake),
            }
        }
    }

    fn checked(
        &self,
        file: &TextFile,
        name: &str,
        entry: Spanned<ContinuationEntry>,
        warnings: &mut Vec<String>,
    ) -> Result<(Layer, ContinuationOverride), ConfigError> {
        let place = entry.referenced;
        if !is_template_name(name) {
            let message = format!("the name of a template is 1 to 64 of a-z, 0-9, - and _, not {name:?}");
            return Err(yaml::at(file, place, message));
        }
        if self.settings.contains_key(name) {
            return Err(yaml::at(file, place, format!("the template {name} is built in: choose another name")));
        }
        let layer = entry.value.check(file, warnings)?;
        self.knows(file, &layer)?;
        let base = layer.template().map(|base| self.find(base).cloned()).transpose();
        let base = base.map_err(|why| yaml::at(file, place, why))?.unwrap_or_default();
        let settings = base.and(layer.fields.clone());
        Ok((layer, settings))
    }

    /// Refuses a layer that names a template which does not exist.
    pub fn knows(&self, file: &TextFile, layer: &Layer) -> Result<(), ConfigError> {
        let Some(template) = &layer.template else { return Ok(()) };
        self.find(&template.value).map(|_| ()).map_err(|why| yaml::at(file, template.referenced, why))
    }

    /// Returns the templates of the file.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    fn find(&self, name: &str) -> Result<&ContinuationOverride, String> {
        self.settings.get(name).ok_or_else(|| {
            let shown: String = name.chars().take(80).collect();
            let suggestion = suggest::did_you_mean(&shown, self.settings.keys().map(String::as_str));
            let known: Vec<&str> = self.settings.keys().map(String::as_str).collect();
            format!("there is no template {shown:?}{suggestion}; there are {}", known.join(", "))
        })
    }
}

fn is_template_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte))
}

/// The layers that a session's own settings go over.
#[derive(Debug, Clone, Copy)]
pub struct Layers<'a> {
    /// Settings of the model.
    pub model: &'a Layer,
    /// Whether the model's settings go over those of the agent.
    pub is_model_over_agent: bool,
    /// Settings of the agent.
    pub agent: &'a Layer,
    /// Settings of the tenant for all agents.
    pub tenant: &'a Layer,
    /// The template that the session names.
    pub session_template: Option<&'a str>,
}

/// The entry that a setting comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingSource {
    /// The entry of the model.
    Model,
    /// The entry of the agent.
    Agent,
    /// The entry of the tenant.
    Tenant,
    /// The session, by its own settings.
    Session,
}

/// Some of the settings below those of a session, all from one place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SourcedSettings<'a> {
    /// The entry that has the settings, or that names the template.
    pub source: SettingSource,
    /// The template that has the settings; none if they are fields of the entry.
    pub template: Option<&'a str>,
    /// Settings that the entry or the template sets.
    pub settings: &'a ContinuationOverride,
}

impl<'a> Layers<'a> {
    /// The settings in the order of their precedence, lowest first: model and agent, each with its template below its
    /// fields; the template of the session, or else of the tenant; the fields of the tenant.
    ///
    /// Whoever names a template for a session or a tenant means all of it, so it goes over the agent. Only one of the
    /// two is used: the settings of two bundles together are a bundle that nobody has written down.
    pub fn stack(&self, templates: &'a Templates) -> Result<Vec<SourcedSettings<'a>>, String> {
        let of_template = |source, name: Option<&'a str>| {
            let found = name.map(|name| {
                Ok::<_, String>(SourcedSettings { source, template: Some(name), settings: templates.find(name)? })
            });
            found.transpose()
        };
        let of_fields = |source, layer: &'a Layer| SourcedSettings { source, template: None, settings: &layer.fields };
        let mut entries = [(SettingSource::Model, self.model), (SettingSource::Agent, self.agent)];
        if self.is_model_over_agent {
            entries.reverse();
        }
        let mut stack = Vec::new();
        for (source, layer) in entries {
            stack.extend(of_template(source, layer.template())?);
            stack.push(of_fields(source, layer));
        }
        let of_session = self.session_template.filter(|name| !name.is_empty());
        stack.extend(match of_session {
            Some(_) => of_template(SettingSource::Session, of_session)?,
            None => of_template(SettingSource::Tenant, self.tenant.template())?,
        });
        stack.push(of_fields(SettingSource::Tenant, self.tenant));
        Ok(stack)
    }
}

/// Lays settings over those that are built in, lowest first. A list replaces the one below it as a whole.
pub fn resolve(stack: &[SourcedSettings<'_>]) -> ContinuationSettings {
    stack.iter().fold(ContinuationSettings::default(), |below, layer| layer.settings.over(&below))
}

impl Layer {
    /// The model that it names as its judge, and where; none where it names none or an empty one.
    pub fn judge(&self) -> Option<(&str, Location)> {
        let judge = self.fields.judge.as_deref().filter(|judge| !judge.is_empty())?;
        Some((judge, self.judge_place?))
    }

    fn template(&self) -> Option<&str> {
        self.template.as_ref().map(|template| template.value.as_str())
    }
}

impl ContinuationEntry {
    /// Checks what a file says; what is odd but not refused is added to `warnings`.
    pub fn check(self, file: &TextFile, warnings: &mut Vec<String>) -> Result<Layer, ConfigError> {
        let refuse = |place, message: String| Err(yaml::at(file, place, message));
        if let Some(Spanned { value, referenced: place, .. }) = &self.max_iterations {
            if !(1..=ITERATIONS_MAX).contains(value) {
                return refuse(*place, format!("max_iterations must be 1 to {ITERATIONS_MAX}, got {value}"));
            }
            if !ITERATIONS_USUAL.contains(value) {
                let odd = format!("max_iterations {value} is unusual; 1 to 20 is usual");
                warnings.push(yaml::at(file, *place, odd).to_string());
            }
        }
        if let Some(Spanned { value, referenced: place, .. }) = &self.timeout {
            let most = TURN_MAX.as_secs();
            if !(1..=most).contains(value) {
                return refuse(*place, format!("timeout must be 1 to {most} seconds, got {value}"));
            }
            if !TIMEOUT_USUAL.contains(value) {
                let odd = format!("timeout {value} s is unusual; 60 to 3600 is usual");
                warnings.push(yaml::at(file, *place, odd).to_string());
            }
        }
        if let Some(Spanned { value, referenced: place, .. }) = &self.confidence_min
            && !(0.0..=1.0).contains(value)
        {
            return refuse(*place, format!("confidence_min must be 0 to 1, got {value}"));
        }
        if let Some(Spanned { value, referenced: place, .. }) = &self.retries
            && *value > MODEL_RETRIES_LIMIT
        {
            return refuse(*place, format!("retries must be 0 to {MODEL_RETRIES_LIMIT}, got {value}"));
        }
        let lists = self.continuation_patterns.as_ref().or(self.termination_patterns.as_ref());
        let place = lists.map(|list| list.referenced);
        let judge_place = self.judge.as_ref().map(|judge| judge.referenced);
        let fields = ContinuationOverride {
            template: None,
            enabled: self.enabled,
            require_explicit_signal: self.require_explicit_signal,
            max_iterations: self.max_iterations.map(|iterations| iterations.value),
            timeout: self.timeout.map(|timeout| timeout.value),
            continue_on_length: self.continue_on_length,
            continuation_patterns: self.continuation_patterns.map(|list| patterns(file, list)).transpose()?,
            termination_patterns: self.termination_patterns.map(|list| patterns(file, list)).transpose()?,
            detect_intent: self.detect_intent,
            confidence_min: self.confidence_min.map(|confidence| confidence.value),
            judge: self.judge.map(|judge| judge.value),
            limits: self.limits,
            on_limit: self.on_limit,
            on_error: self.on_error,
            retries: self.retries.map(|retries| retries.value),
            prune: self.prune,
        };
        // Each pattern can be used by itself; together they may be too large.
        let empty = ContinuationSettings {
            continuation_patterns: Vec::new(),
            termination_patterns: Vec::new(),
            ..ContinuationSettings::default()
        };
        match (Patterns::compile(&fields.over(&empty)), place) {
            (Err(error), Some(place)) => Err(yaml::at(file, place, error)),
            (Err(_) | Ok(_), _) => Ok(Layer { fields, template: self.template, judge_place }),
        }
    }
}

/// Checks an `ai_config` of a file.
pub fn ai_config(file: &TextFile, entry: Option<Spanned<AiConfig>>) -> Result<AiConfig, ConfigError> {
    let Some(Spanned { value, referenced: place, .. }) = entry else { return Ok(AiConfig::default()) };
    value.check().map_err(|why| yaml::at(file, place, format!("ai_config.{why}")))?;
    Ok(value)
}

fn patterns(file: &TextFile, list: Spanned<Vec<Spanned<String>>>) -> Result<Vec<String>, ConfigError> {
    if list.value.len() > reply::PATTERNS_MAX {
        let message = format!("{} patterns in one list; at most {}", list.value.len(), reply::PATTERNS_MAX);
        return Err(yaml::at(file, list.referenced, message));
    }
    let check = |pattern: Spanned<String>| match Patterns::check(&pattern.value) {
        Ok(()) => Ok(pattern.value),
        Err(error) => Err(yaml::at(file, pattern.referenced, error)),
    };
    list.value.into_iter().map(check).collect()
}
