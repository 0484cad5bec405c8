//! `continuation_config`, as an agent and a model may have it: one layer each, and what the layers come to.

use std::collections::BTreeMap;

use contract::AiConfig;
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

/// As it stands in a file.
#[derive(Debug, Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(
    rename = "continuation_config",
    description = "How the loop goes on. What is left out is as the layer below has it.",
    transform = with_alias
)]
pub struct ContinuationEntry {
    /// A named bundle of settings, in place of what is built in: one of `continuation_templates` of agents.yaml,
    /// `multi_step_tool_work` or `plain_words`.
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
    /// How sure, 0 to 1, the model has to be of its signal where it says so. A less sure TERMINATE takes one more step,
    /// in which the model checks its work; with a less sure CONTINUE it is told to find out or to ask.
    #[schemars(with = "Option<f64>", range(min = 0, max = 1))]
    confidence_min: Option<Spanned<f64>>,
    /// The model that is asked where neither a signal nor a pattern nor the words of a reply decide; empty: none. Only
    /// where no explicit signal is required.
    #[schemars(with = "Option<String>")]
    judge: Option<Spanned<String>>,
    /// What a turn may use besides, each limit by itself: an agent that changes one does not take off those of its
    /// model.
    limits: Option<LimitsOverride>,
    /// What happens at a limit: the model answers the user in one last step without tools, the turn ends at once, or a
    /// person is asked.
    #[schemars(schema_with = "schema::words_or_none::<LimitAction>")]
    on_limit: Option<LimitAction>,
    /// What happens when a model call has failed for good.
    #[schemars(schema_with = "schema::words_or_none::<OnError>")]
    on_error: Option<OnError>,
    /// How often in a row a model call is tried again that failed in a way that may pass.
    #[schemars(with = "Option<u32>", range(max = MODEL_RETRIES_LIMIT))]
    retries: Option<Spanned<u32>>,
    /// What happens to the oldest turns when the transcript outgrows the model's window.
    #[schemars(schema_with = "schema::words_or_none::<Prune>")]
    prune: Option<Prune>,
}

/// What is read under another name too is not seen by the derived code.
fn with_alias(schema: &mut Schema) {
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut)
        && let Some(patterns) = fields.get("continuation_patterns").cloned()
    {
        fields.insert("patterns".to_owned(), patterns);
    }
}

/// What an agent or a model says of its own; what it does not say is left to the layers below.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Layer {
    template: Option<Named>,
    enabled: Option<bool>,
    require_explicit_signal: Option<bool>,
    max_iterations: Option<u32>,
    timeout: Option<u64>,
    continue_on_length: Option<bool>,
    continuation_patterns: Option<Vec<String>>,
    termination_patterns: Option<Vec<String>>,
    detect_intent: Option<bool>,
    confidence_min: Option<f64>,
    judge: Option<Named>,
    limits: LimitsOverride,
    on_limit: Option<LimitAction>,
    on_error: Option<OnError>,
    retries: Option<u32>,
    prune: Option<Prune>,
}

/// What a layer names, and where.
#[derive(Debug, Clone, PartialEq)]
struct Named {
    name: String,
    place: Location,
}

impl From<Spanned<String>> for Named {
    fn from(text: Spanned<String>) -> Self {
        Self { name: text.value, place: text.referenced }
    }
}

/// Bundles of settings by name: those that are built in, and those of `continuation_templates`.
#[derive(Debug, Clone, PartialEq)]
pub struct Templates {
    settings: BTreeMap<String, ContinuationSettings>,
    /// Those of the file, as it says them.
    layers: Vec<Layer>,
}

impl Default for Templates {
    fn default() -> Self {
        let built_in = reply::TEMPLATES.iter().map(|template| template.name);
        let settings = built_in.filter_map(|name| Some((name.to_owned(), reply::template(name)?))).collect();
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
    ) -> Result<(Layer, ContinuationSettings), ConfigError> {
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
        let settings = resolve(self, None, &[&layer]).map_err(|why| yaml::at(file, place, why))?;
        Ok((layer, settings))
    }

    /// Refuses a layer that names a template which does not exist.
    pub fn knows(&self, file: &TextFile, layer: &Layer) -> Result<(), ConfigError> {
        let Some(Named { name, place }) = &layer.template else { return Ok(()) };
        self.find(name).map(|_| ()).map_err(|why| yaml::at(file, *place, why))
    }

    /// Those of the file.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    fn find(&self, name: &str) -> Result<&ContinuationSettings, String> {
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

/// Lays what is said one over the other: what is built in, then the template, then `layers`, lowest first: model,
/// agent, tenant. What a session says goes over all of them, where the session starts. A list replaces the one below it
/// whole.
///
/// There is one template, and it takes the place of what is built in: the one that the session names, else that of the
/// highest layer which names one, since two templates laid over each other would be a bundle that nobody has written
/// down. The fields that a layer names of its own count against any template, since a field is more particular than a
/// bundle.
pub fn resolve(
    templates: &Templates,
    of_session: Option<&str>,
    layers: &[&Layer],
) -> Result<ContinuationSettings, String> {
    let of_layers = layers.iter().rev().find_map(|layer| layer.template.as_ref().map(|named| named.name.as_str()));
    let template = of_session.filter(|name| !name.is_empty()).or(of_layers);
    let settings = template.map(|name| templates.find(name).cloned()).transpose()?.unwrap_or_default();
    Ok(layers.iter().fold(settings, |settings, layer| layer.over(settings)))
}

impl Layer {
    /// The model that it names as its judge, and where; none where it names none or an empty one.
    pub fn judge(&self) -> Option<(&str, Location)> {
        let judge = self.judge.as_ref().filter(|judge| !judge.name.is_empty())?;
        Some((&judge.name, judge.place))
    }

    fn over(&self, below: ContinuationSettings) -> ContinuationSettings {
        let list = |own: &Option<Vec<String>>, below| own.clone().unwrap_or(below);
        let mut settings = ContinuationSettings {
            enabled: self.enabled.unwrap_or(below.enabled),
            require_explicit_signal: self.require_explicit_signal.unwrap_or(below.require_explicit_signal),
            max_iterations: self.max_iterations.unwrap_or(below.max_iterations),
            timeout: self.timeout.unwrap_or(below.timeout),
            continue_on_length: self.continue_on_length.unwrap_or(below.continue_on_length),
            continuation_patterns: list(&self.continuation_patterns, below.continuation_patterns),
            termination_patterns: list(&self.termination_patterns, below.termination_patterns),
            detect_intent: self.detect_intent.unwrap_or(below.detect_intent),
            confidence_min: self.confidence_min.or(below.confidence_min),
            judge: self.judge.as_ref().map(|judge| judge.name.clone()).or(below.judge),
            limits: self.limits.over(below.limits),
            on_limit: below.on_limit,
            ends_at_once: below.ends_at_once,
            on_error: self.on_error.unwrap_or(below.on_error),
            retries: self.retries.unwrap_or(below.retries),
            prune: self.prune.unwrap_or(below.prune),
        };
        if let Some(action) = self.on_limit {
            action.set(&mut settings);
        }
        settings
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
        let layer = Layer {
            template: self.template.map(Named::from),
            enabled: self.enabled,
            require_explicit_signal: self.require_explicit_signal,
            max_iterations: self.max_iterations.map(|iterations| iterations.value),
            timeout: self.timeout.map(|timeout| timeout.value),
            continue_on_length: self.continue_on_length,
            continuation_patterns: self.continuation_patterns.map(|list| patterns(file, list)).transpose()?,
            termination_patterns: self.termination_patterns.map(|list| patterns(file, list)).transpose()?,
            detect_intent: self.detect_intent,
            confidence_min: self.confidence_min.map(|confidence| confidence.value),
            judge: self.judge.map(Named::from),
            limits: self.limits.unwrap_or_default(),
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
        match (Patterns::compile(&Layer { template: None, ..layer.clone() }.over(empty)), place) {
            (Err(error), Some(place)) => Err(yaml::at(file, place, error)),
            (Err(_) | Ok(_), _) => Ok(layer),
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
