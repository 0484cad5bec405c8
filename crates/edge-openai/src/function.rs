//! Functions that the client brings, as tools.

use contract::Json;
use contract::client_tool::ClientTool;
use edge_core::api_error::ApiError;
use edge_core::turn;
use serde::Deserialize;
use serde_json::Value;

/// The server in whose name tools of the fleet are called.
pub(super) const SERVER_LABEL: &str = "ailoop";

/// A tool in the list of a request.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ToolEntry {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: String,
    description: Option<String>,
    parameters: Option<Value>,
}

/// Makes tools of the entries of a list, of which all must be functions. `list` is its field, and `taken` says in the
/// error what an agent takes.
pub(super) fn to_client_tools<'a>(
    list: &str,
    taken: &str,
    entries: impl Iterator<Item = &'a ToolEntry>,
) -> Result<Vec<ClientTool>, ApiError> {
    let tools = entries.enumerate().map(|(index, ToolEntry { kind, name, description, parameters })| {
        if kind != "function" {
            let kind: String = kind.chars().take(40).collect();
            return Err(ApiError::bad_request(format!("{list}[{index}] is a {kind:?}: an agent takes {taken}")));
        }
        turn::client_tool(&format!("{list}.name"), name, description.as_ref(), parameters.as_ref().map(Json::of))
    });
    tools.collect()
}

/// Returns the texts of parts, one a line; parts of other kinds are named only.
pub(super) fn parts_text(parts: &[Value]) -> String {
    let text = |part: &Value| match (&part["text"], &part["refusal"]) {
        (Value::String(text), _) | (_, Value::String(text)) => text.clone(),
        _ => turn::describe_part(part["type"].as_str().unwrap_or("a part")),
    };
    parts.iter().map(text).collect::<Vec<_>>().join("\n")
}

/// Returns the arguments of a call as text; most clients send them as text.
pub(super) fn arguments_text(arguments: &Value) -> String {
    match arguments {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => arguments.to_string(),
    }
}
