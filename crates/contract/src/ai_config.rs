//! `ai_config`: settings of a model, an agent or a session for its prompt and for the requests to its model.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::ToolName;
use crate::limits::{
    PROMPT_PARAMETERS_BYTES_MAX, PROMPT_PARAMETERS_MAX, SYSTEM_PROMPT_BYTES_MAX, TOOL_CHOICES_MAX,
    TOOL_PREAMBLE_BYTES_MAX,
};
use crate::model::StreamingOverride;

/// One layer of settings. A field that is absent has the value of the layer below: a session overrides its agent, and
/// an agent its model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(
    rename = "ai_config",
    description = "The prompt and the requests to the model. What is left out is as the layer below has it."
)]
pub struct AiConfig {
    /// System prompt in place of the agent's own; shared parts follow it. Each `{{{name}}}` in it is replaced by its
    /// value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Text before the list of tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_preamble: Option<String>,
    /// Values for `{{{name}}}` in prompts. Each value replaces that of the same name in the layer below.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub prompt_parameters: BTreeMap<String, String>,
    /// Whether the prompt describes the tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_tools: Option<bool>,
    /// Whether the prompt has the shared parts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_shared: Option<bool>,
    /// Parameters of requests, in the terms of the provider's protocol, such as `temperature`. Each one replaces that
    /// of the same name in the layer below. The provider refuses a parameter that it does not know.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// `auto`, `none`, `required` or one function, for the first, second, … step of each turn; `auto` after the last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_choice: Vec<Value>,
    /// Streaming of replies, and timeouts of the model's connection. Each field replaces that field of the layer below.
    #[serde(skip_serializing_if = "crate::default::is_default")]
    pub streaming: StreamingOverride,
}

impl AiConfig {
    /// Whether no field is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a field is set that only a composer can apply, of this version or a later one.
    pub fn needs_composer(&self) -> bool {
        *self != Self { parameters: self.parameters.clone(), ..Self::default() }
    }

    /// This layer over the one below it.
    #[must_use]
    pub fn over(&self, below: Self) -> Self {
        let mut merged = below;
        merged.system_prompt = self.system_prompt.clone().or(merged.system_prompt);
        merged.tool_preamble = self.tool_preamble.clone().or(merged.tool_preamble);
        merged.include_tools = self.include_tools.or(merged.include_tools);
        merged.include_shared = self.include_shared.or(merged.include_shared);
        merged.prompt_parameters.extend(self.prompt_parameters.clone());
        merged.parameters.extend(self.parameters.clone());
        if !self.tool_choice.is_empty() {
            merged.tool_choice.clone_from(&self.tool_choice);
        }
        merged.streaming = merged.streaming.and(self.streaming);
        merged
    }

    /// This layer as the composer reads it. The session itself lays its `streaming` over that of the files: composers
    /// before fold 13 refuse a layer with it.
    #[must_use]
    pub fn without_streaming(self) -> Self {
        Self { streaming: StreamingOverride::default(), ..self }
    }

    /// The choice of tools in a step of a turn, from 1; none: as the model likes.
    pub fn tool_choice_in(choices: &[Value], step: u32) -> Option<&Value> {
        let index = usize::try_from(step.checked_sub(1)?).ok()?;
        choices.get(index)
    }

    /// Whether it can be used; the error names the field and the remedy. Parameters are for their provider to check.
    pub fn check(&self) -> Result<(), String> {
        self.streaming.check()?;
        let texts = [
            ("system_prompt", &self.system_prompt, SYSTEM_PROMPT_BYTES_MAX),
            ("tool_preamble", &self.tool_preamble, TOOL_PREAMBLE_BYTES_MAX),
        ];
        for (field, text, most) in texts {
            let bytes = text.as_ref().map_or(0, String::len);
            if bytes > most {
                return Err(format!("{field} has {bytes} bytes, at most {most} are taken; shorten it"));
            }
        }
        if self.prompt_parameters.len() > PROMPT_PARAMETERS_MAX {
            let count = self.prompt_parameters.len();
            return Err(format!("prompt_parameters has {count} values, at most {PROMPT_PARAMETERS_MAX} are taken"));
        }
        for name in self.prompt_parameters.keys() {
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            if name.is_empty() || name.len() > 64 || !name.chars().all(is_name) {
                let why = "a name has 1 to 64 letters, digits, `_`, `-` and `.`";
                return Err(format!("prompt_parameters: {name:?} is no name; {why}"));
            }
        }
        let bytes: usize = self.prompt_parameters.values().map(String::len).sum();
        if bytes > PROMPT_PARAMETERS_BYTES_MAX {
            return Err(format!(
                "prompt_parameters has {bytes} bytes, at most {PROMPT_PARAMETERS_BYTES_MAX} are taken; shorten them"
            ));
        }
        if self.tool_choice.len() > TOOL_CHOICES_MAX {
            let count = self.tool_choice.len();
            return Err(format!("tool_choice has {count} steps, at most {TOOL_CHOICES_MAX} are taken"));
        }
        for (index, choice) in self.tool_choice.iter().enumerate() {
            if !is_tool_choice(choice) {
                return Err(format!(
                    "tool_choice[{index}] must be auto, none, required, or {{type: function, function: {{name: …}}}}"
                ));
            }
        }
        Ok(())
    }
}

fn is_tool_choice(choice: &Value) -> bool {
    match choice {
        Value::String(word) => matches!(word.as_str(), "auto" | "none" | "required"),
        Value::Object(fields) => {
            let function = choice["function"].as_object().filter(|function| function.len() == 1);
            let name = function.and_then(|function| function.get("name")?.as_str());
            fields.len() == 2 && choice["type"] == "function" && name.is_some_and(|name| ToolName::new(name).is_ok())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(value: Value) -> AiConfig {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn layer_over_another_replaces_what_it_says_each_by_itself() {
        let below = config(json!({"system_prompt": "a", "include_tools": false, "tool_choice": ["required"],
            "parameters": {"temperature": 1, "seed": 7}, "prompt_parameters": {"x": "1", "y": "2"},
            "streaming": {"enabled": false, "idle": 60}}));
        let above = config(json!({"system_prompt": "b", "tool_preamble": "p", "parameters": {"temperature": 0},
            "prompt_parameters": {"y": "3"}, "streaming": {"idle": 90, "connect": 2}}));
        let merged = config(json!({"system_prompt": "b", "tool_preamble": "p", "include_tools": false,
            "tool_choice": ["required"], "parameters": {"temperature": 0, "seed": 7},
            "prompt_parameters": {"x": "1", "y": "3"}, "streaming": {"enabled": false, "idle": 90, "connect": 2}}));
        assert_eq!(above.over(below.clone()), merged);
        assert_eq!(AiConfig::default().over(below.clone()), below);
    }

    #[test]
    fn layer_that_cannot_be_used_is_refused_with_its_field() {
        let long = "x".repeat(SYSTEM_PROMPT_BYTES_MAX + 1);
        for (value, expected) in [
            (json!({"system_prompt": long}), "system_prompt has 65537 bytes"),
            (json!({"prompt_parameters": {"a b": "x"}}), "prompt_parameters: \"a b\" is no name"),
            (
                json!({"prompt_parameters": {"a": &long[..40_000], "b": &long[..40_000]}}),
                "prompt_parameters has 80000 bytes",
            ),
            (json!({"tool_choice": ["auto", "any"]}), "tool_choice[1] must be"),
            (json!({"tool_choice": [{"type": "function"}]}), "tool_choice[0] must be"),
            (json!({"streaming": {"first_byte": 0}}), "streaming.first_byte must be 1 to 3600 seconds, got 0"),
            (json!({"streaming": {"chunk_ms": 10_001}}), "streaming.chunk_ms must be 0 to 10000 milliseconds"),
            (json!({"streaming": {"chunk_bytes": 2 << 20}}), "streaming.chunk_bytes must be 0 to 1048576 bytes"),
        ] {
            let refused = config(value).check().unwrap_err();
            assert!(refused.starts_with(expected), "{refused}");
        }
        let function = json!({"type": "function", "function": {"name": "look"}});
        assert_eq!(config(json!({"tool_choice": ["required", function, "none"]})).check(), Ok(()));
    }

    #[test]
    fn tool_choice_counts_for_its_step_alone() {
        let choices = [json!("required"), json!("none")];
        let of = |step| AiConfig::tool_choice_in(&choices, step).cloned();
        assert_eq!((of(0), of(1), of(2), of(3)), (None, Some(json!("required")), Some(json!("none")), None));
    }
}
