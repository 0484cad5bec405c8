//! Functions that the client brings, as tools.

use contract::Json;
use contract::client_tool::ClientTool;
use contract::tool::EffectClass;
use serde_json::{Value, json};

use crate::api_error::ApiError;
use crate::params;

/// Makes a tool of a function of the client; `field` is that of the name.
pub(super) fn to_client_tool(
    field: &'static str,
    name: &str,
    description: Option<&String>,
    parameters: Option<&Value>,
) -> Result<ClientTool, ApiError> {
    Ok(ClientTool {
        name: params::parse(field, name)?,
        description: description.cloned().unwrap_or_default(),
        parameters: parameters.map_or_else(|| Json::of(&json!({"type": "object"})), Json::of),
        effect: EffectClass::default(),
        timeout_ms: None,
        max_output: None,
    })
}

/// Returns the arguments of a call as text; most clients send them as text.
pub(super) fn arguments_text(arguments: &Value) -> String {
    match arguments {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => arguments.to_string(),
    }
}
