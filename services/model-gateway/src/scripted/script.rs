//! The script's format: steps, tried from the top; the first that fits is played.

use std::collections::BTreeMap;

use contract::model::{FailureKind, Usage};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior};
use serde::Deserialize;
use serde_json::Value;
use service::ConfigError;
use service::paths::TextFile;

/// A script. All texts are templates and `when` and `for_each` are expressions of minijinja over
/// [`super::context`]; what is not there is undefined, never an error.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    /// Milliseconds between two words of a text; 8.
    #[serde(default = "delay_ms")]
    pub(crate) delay_ms: u64,
    /// Tried from the top.
    pub(crate) steps: Vec<ScriptStep>,
}

fn delay_ms() -> u64 {
    8
}

/// One reply.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptStep {
    /// What it is for, in messages.
    #[serde(default)]
    pub(crate) name: String,
    /// Its place within the turn, from 1; any where none is given.
    #[serde(default)]
    pub(crate) at: Option<u32>,
    /// Whether it fits; always where none is given.
    #[serde(default)]
    pub(crate) when: Option<String>,
    /// What the user reads.
    #[serde(default)]
    pub(crate) text: String,
    /// What is shown as reasoning.
    #[serde(default)]
    pub(crate) reasoning: String,
    /// What is called.
    #[serde(default)]
    pub(crate) tool_calls: Vec<ScriptCall>,
    /// Whether to go on: `status`, `reason`, `next_action`, `progress`, as in the continuation signal.
    #[serde(default)]
    pub(crate) signal: Option<BTreeMap<String, Value>>,
    /// What the provider says that it used; an estimate where nothing is given.
    #[serde(default)]
    pub(crate) usage: Option<Usage>,
    /// How it fails after what it said, instead of ending.
    #[serde(default)]
    pub(crate) fail: Option<ScriptFailure>,
}

/// How a provider fails.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptFailure {
    /// As in `model_failed`: `rate_limited`, `overloaded`, `truncated` and so on.
    pub(crate) kind: FailureKind,
    /// Seconds that it asks to wait.
    #[serde(default)]
    pub(crate) retry_after: Option<u64>,
    /// How often it fails before it does not any more; always where none is given.
    #[serde(default)]
    pub(crate) times: Option<u32>,
}

/// A tool call, or one for each item of a list.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptCall {
    /// The tool.
    pub(crate) name: String,
    /// Its arguments.
    #[serde(default)]
    pub(crate) arguments: ScriptArguments,
    /// Whether it is called at all.
    #[serde(default)]
    pub(crate) when: Option<String>,
    /// A list: an expression, or a template that writes JSON.
    #[serde(default)]
    pub(crate) for_each: Option<String>,
    /// What an item of the list is called; `item`.
    #[serde(default = "item", rename = "as")]
    pub(crate) item: String,
}

fn item() -> String {
    "item".to_owned()
}

/// Arguments of a call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum ScriptArguments {
    /// A template that writes the JSON text.
    Text(String),
    /// An object; each text in it is a template.
    Object(BTreeMap<String, Value>),
}

impl Default for ScriptArguments {
    fn default() -> Self {
        Self::Object(BTreeMap::new())
    }
}

impl Script {
    /// Reads a script and compiles everything in it once, so that a mistake is found at the start.
    pub(crate) fn parse(file: &TextFile) -> Result<Self, ConfigError> {
        let script: Self = service::yaml::parse(file)?;
        let environment = environment();
        for (index, step) in script.steps.iter().enumerate() {
            step.check(&environment).map_err(|error| ConfigError::Bad {
                origin: file.origin.clone(),
                line: 0,
                column: 0,
                message: format!("step {} {:?}: {error:#}", index + 1, step.name),
            })?;
        }
        Ok(script)
    }
}

impl ScriptStep {
    fn check(&self, environment: &Environment<'_>) -> Result<(), minijinja::Error> {
        let template = |text: &str| environment.template_from_str(text).map(drop);
        let expression = |text: &str| environment.compile_expression(text).map(drop);
        template(&self.text)?;
        template(&self.reasoning)?;
        self.when.as_deref().map_or(Ok(()), expression)?;
        for value in self.signal.iter().flat_map(BTreeMap::values) {
            each_text(value, &template)?;
        }
        for call in &self.tool_calls {
            template(&call.name)?;
            call.when.as_deref().map_or(Ok(()), expression)?;
            match call.for_each.as_deref() {
                Some(text) if is_template(text) => template(text)?,
                Some(text) => expression(text)?,
                None => {}
            }
            match &call.arguments {
                ScriptArguments::Text(text) => template(text)?,
                ScriptArguments::Object(fields) => fields.values().try_for_each(|value| each_text(value, &template))?,
            }
        }
        Ok(())
    }
}

/// Whether a text is a template rather than an expression.
pub(super) fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%")
}

/// Where scripts run: nothing to load, nothing to call; what is not there is empty. A block's line leaves no trace.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.add_filter("truncate_to", truncate_to);
    environment
}

/// The first `max` characters on one line, with a sign where something is missing.
#[allow(clippy::needless_pass_by_value, reason = "filters own their arguments")]
fn truncate_to(text: String, max: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn each_text(value: &Value, check: &impl Fn(&str) -> Result<(), minijinja::Error>) -> Result<(), minijinja::Error> {
    match value {
        Value::String(text) => check(text),
        Value::Array(items) => items.iter().try_for_each(|item| each_text(item, check)),
        Value::Object(fields) => fields.values().try_for_each(|field| each_text(field, check)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}
