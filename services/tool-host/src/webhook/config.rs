//! Configuration of webhooks.

use std::collections::BTreeMap;

use configuration::{Secret, schema};
use contract::ToolName;
use contract::tool::{ApprovalPolicy, EffectClass};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::connect::Login;
use crate::error::HostError;

/// An HTTP endpoint that is offered as a tool.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "webhook")]
pub struct WebhookConfig {
    /// URL to which the arguments are posted; it may be private.
    pub url: String,
    /// Description for the model: what the tool does, and when to use it.
    pub description: String,
    /// JSON Schema of the arguments object.
    #[serde(default = "no_parameters")]
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub parameters: Value,
    /// Effect class of the tool: what may be done if it is unknown whether a call took effect.
    #[serde(default)]
    #[schemars(schema_with = "schema::words_or_none::<EffectClass>")]
    pub effect: EffectClass,
    /// Whether a person is asked before each call.
    #[serde(default)]
    #[schemars(schema_with = "schema::words_or_none::<ApprovalPolicy>")]
    pub approval: ApprovalPolicy,
    /// Seconds that one request may take.
    #[serde(default = "timeout_default")]
    #[schemars(range(min = 1, max = 3_600))]
    pub timeout: u64,
    /// Bytes of a result that the model reads; the middle of a longer one is left out.
    pub max_output: Option<usize>,
    /// Text that is added to the prompt of agents that have this tool.
    pub instructions: Option<String>,
    /// Headers of each request.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// Headers of each request, by the variables of the environment that hold them.
    #[serde(default)]
    pub headers_from: BTreeMap<String, String>,
    /// The NATS user of this tool, where users have permissions.
    pub login: Option<Login>,
}

fn no_parameters() -> Value {
    json!({"type": "object", "properties": {}})
}

fn timeout_default() -> u64 {
    30
}

pub(super) fn setting(name: &ToolName, field: &str, message: String) -> HostError {
    HostError::Setting { field: format!("webhooks.{name}.{field}"), message }
}
