//! Format of scripts: the first step that matches a call is played.

use std::collections::BTreeMap;

use configuration::ConfigError;
use configuration::TextFile;
use contract::model::{FailureKind, Usage};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, UndefinedBehavior};
use serde::Deserialize;
use serde_json::Value;

/// A script. Texts are templates, and `when` and `for_each` are expressions of minijinja over [`super::context`]. A
/// missing variable is undefined, and no error.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Script {
    /// Milliseconds between two words of a text; the default is 8.
    #[serde(default = "delay_ms")]
    pub(crate) delay_ms: u64,
    /// Steps in the order in which they are tried.
    pub(crate) steps: Vec<ScriptStep>,
}

fn delay_ms() -> u64 {
    8
}

/// One reply of the script.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ScriptStep {
    /// Name of the step in messages.
    pub(crate) name: String,
    /// Number of the step within the turn, from 1; without it, any.
    pub(crate) at: Option<u32>,
    /// Condition of the step; without it, always true.
    pub(crate) when: Option<String>,
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) tool_calls: Vec<ScriptCall>,
    /// The continuation signal: `status`, `reason`, `next_action`, `progress`.
    pub(crate) signal: Option<BTreeMap<String, Value>>,
    /// Usage that the provider reports; without it, it is estimated.
    pub(crate) usage: Option<Usage>,
    /// Failure of the reply after its text, instead of its normal end.
    pub(crate) fail: Option<ScriptFailure>,
}

/// A failure of the scripted provider.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptFailure {
    /// A kind as in `model_failed`: `rate_limited`, `overloaded`, `truncated` and so on.
    pub(crate) kind: FailureKind,
    /// Seconds until the next request, as the provider asks.
    #[serde(default)]
    pub(crate) retry_after: Option<u64>,
    /// Number of times that the step fails before it succeeds; without it, always.
    #[serde(default)]
    pub(crate) times: Option<u32>,
}

/// A tool call, or one for each item of a list.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptCall {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) arguments: ScriptArguments,
    /// Condition of the call; without it, always true.
    #[serde(default)]
    pub(crate) when: Option<String>,
    /// A list with one call for each item: an expression, or a template that writes JSON.
    #[serde(default)]
    pub(crate) for_each: Option<String>,
    /// Variable with the item of the list; the default is `item`.
    #[serde(default = "item", rename = "as")]
    pub(crate) item: String,
}

fn item() -> String {
    "item".to_owned()
}

/// Arguments of a scripted call.
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
    /// Parses a script, and compiles its templates and expressions, so that mistakes are found at the start.
    pub(crate) fn parse(file: &TextFile) -> Result<Self, ConfigError> {
        let script: Self = configuration::yaml::parse(file)?;
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
            check_texts(value, &template)?;
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
                ScriptArguments::Object(fields) => {
                    fields.values().try_for_each(|value| check_texts(value, &template))?;
                }
            }
        }
        Ok(())
    }
}

/// Whether a text is a template rather than an expression.
pub(super) fn is_template(text: &str) -> bool {
    text.contains("{{") || text.contains("{%")
}

/// Template environment of scripts. It cannot load files, missing variables are empty, and lines with only a block
/// leave no line.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Chainable);
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        environment.set_syntax(syntax);
    }
    environment.add_filter("truncate_to", truncate_to);
    environment
}

/// The first `max` characters on one line, with an ellipsis if it was cut.
#[allow(clippy::needless_pass_by_value, reason = "filters own their arguments")]
fn truncate_to(text: String, max: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn check_texts(value: &Value, check: &impl Fn(&str) -> Result<(), minijinja::Error>) -> Result<(), minijinja::Error> {
    match value {
        Value::String(text) => check(text),
        Value::Array(items) => items.iter().try_for_each(|item| check_texts(item, check)),
        Value::Object(fields) => fields.values().try_for_each(|field| check_texts(field, check)),
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(()),
    }
}
