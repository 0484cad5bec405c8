//! Explains which entry of which file each setting of a new session comes from.

use std::collections::{BTreeMap, BTreeSet};

use configuration::continuation::{SettingSource, SourcedSettings};
use contract::ErrorCode;
use contract::compose::{ComposeRequest, Composed};
use contract::model::Streaming;
use serde::Serialize;
use serde_json::Value;

use crate::catalog::{Catalog, Entries, named_model};

/// Origin of a setting that no entry sets.
const BUILT_IN: &str = "built in";

/// A new session, and the origins of its settings.
#[derive(Debug)]
pub struct Explanation {
    /// Everything that the session begins with.
    pub composed: Composed,
    /// Origin of the agent.
    pub agent: String,
    /// Origin of the choice of the model.
    pub model: String,
    /// Fields of `continuation_config` and `ai_config`, in the order of their names.
    pub settings: Vec<ExplainedSetting>,
}

/// A setting as files name it, its value in the session, and its origin.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExplainedSetting {
    /// Its name, such as `continuation_config.limits.tokens`.
    pub name: String,
    /// Its value; null if it is off.
    pub value: Value,
    /// The entry and the file that set it, or `built in`.
    pub origin: String,
}

impl Catalog {
    /// Composes the session of a request, and returns where its settings come from.
    pub fn explain(&self, request: &ComposeRequest) -> Result<Explanation, (ErrorCode, String)> {
        let composed = self.try_compose(request)?;
        let entries = self.find_entries(request)?;
        let stack = entries.stack(self, request)?;
        let layers = stack.iter().map(|layer| (self.name_settings(&entries, layer), fields(layer.settings)));
        let mut settings = rows("continuation_config", continuation_fields(&composed), layers);
        if !composed.agent.continuation.enabled
            && let Some(enabled) = settings.iter_mut().find(|row| row.name == "continuation_config.enabled")
            && stack.iter().rev().find_map(|layer| layer.settings.enabled) != Some(false)
        {
            "the feature continuation is off".clone_into(&mut enabled.origin);
        }
        let merged = entries.merge_ai_config(&entries.model.entry.ai_config, request);
        let mut values = fields(&merged);
        let streaming = fields(&merged.streaming.over(&Streaming::default()));
        values.extend(streaming.into_iter().map(|(name, value)| (format!("streaming.{name}"), value)));
        let layers = [
            (SettingSource::Model, &entries.model.entry.ai_config),
            (SettingSource::Agent, &entries.agent.ai_config),
            (SettingSource::Tenant, &entries.tenant.ai_config),
            (SettingSource::Session, &request.ai_config),
        ];
        let layers = layers.map(|(source, layer)| (self.name_source(&entries, source), fields(layer)));
        settings.extend(rows("ai_config", values, layers.into_iter()));
        Ok(Explanation {
            agent: self.name_source(&entries, SettingSource::Agent),
            model: self.name_model_choice(&entries, request),
            settings,
            composed,
        })
    }

    fn name_model_choice(&self, entries: &Entries<'_>, request: &ComposeRequest) -> String {
        match (named_model(request, entries.agent), &entries.agent.model) {
            (Some(named), Some(own)) if named == own => self.name_source(entries, SettingSource::Agent),
            (Some(_), _) => "named for the session".to_owned(),
            (None, _) => self.name_default_model(),
        }
    }

    fn name_settings(&self, entries: &Entries<'_>, layer: &SourcedSettings<'_>) -> String {
        let source = self.name_source(entries, layer.source);
        layer.template.map_or_else(|| source.clone(), |template| format!("template {template} of {source}"))
    }

    fn name_source(&self, entries: &Entries<'_>, source: SettingSource) -> String {
        let (agents, models) = self.origins();
        let model = entries.model.key.as_ref().unwrap_or(&entries.model.id);
        match source {
            SettingSource::Model => format!("model {model} ({models})"),
            SettingSource::Agent => format!("agent {} ({agents})", entries.agent.id),
            SettingSource::Tenant => format!("tenant {} ({agents})", entries.tenant_id),
            SettingSource::Session => "the session".to_owned(),
        }
    }
}

/// The continuation settings of a session under the names that files give them.
fn continuation_fields(composed: &Composed) -> BTreeMap<String, Value> {
    let settings = &composed.agent.continuation;
    let mut values = fields(settings);
    for written in ["limit_action", "ends_at_once"] {
        values.remove(written);
    }
    values.insert("on_limit".to_owned(), serde_json::to_value(settings.on_limit).unwrap_or_default());
    values
}

/// A row for each setting that has a value or that a layer sets. The last layer that sets it is its origin.
fn rows(
    section: &str,
    mut values: BTreeMap<String, Value>,
    layers: impl Iterator<Item = (String, BTreeMap<String, Value>)>,
) -> Vec<ExplainedSetting> {
    let mut origins = BTreeMap::new();
    for (origin, layer) in layers {
        origins.extend(layer.into_keys().map(|name| (name, origin.clone())));
    }
    let names: BTreeSet<String> = values.keys().chain(origins.keys()).cloned().collect();
    let row = |name: String| ExplainedSetting {
        value: values.remove(&name).unwrap_or_default(),
        origin: origins.remove(&name).unwrap_or_else(|| BUILT_IN.to_owned()),
        name: format!("{section}.{name}"),
    };
    names.into_iter().map(row).collect()
}

/// The fields that a layer sets. Those of a mapping within it are set one by one.
fn fields(layer: &impl Serialize) -> BTreeMap<String, Value> {
    let Ok(Value::Object(fields)) = serde_json::to_value(layer) else { return BTreeMap::new() };
    let mut found = BTreeMap::new();
    for (name, value) in fields {
        match value {
            Value::Object(below) => {
                found.extend(below.into_iter().map(|(key, value)| (format!("{name}.{key}"), value)));
            }
            value @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                found.insert(name, value);
            }
        }
    }
    found
}
