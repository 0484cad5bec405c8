//! The forms in which a model may signal: the pseudo-tool's arguments, and the envelope around a whole reply.

use std::sync::LazyLock;

use contract::Json;
use contract::model::{SIGNAL_TOOL, ToolDefinition};
use serde_json::{Value, json};

/// The pseudo-tool as it is offered to models that take several tools and have no structured output.
pub fn definition() -> Json {
    static DEFINITION: LazyLock<Json> = LazyLock::new(|| {
        Json::of(&ToolDefinition {
            name: SIGNAL_TOOL.to_owned(),
            description: "Says whether you go on working (CONTINUE) or are done (TERMINATE). The user never sees it."
                .to_owned(),
            parameters: Json::of(&continuation()),
        })
    });
    DEFINITION.clone()
}

/// The envelope's JSON Schema, as in `docs/reference/continuation.schema.json`. Models write properties in the order of
/// the schema, which is that of the alphabet: `continuation` comes before `response`, so that `response` can be
/// streamed.
pub fn envelope() -> Value {
    let call = json!({
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "type": {"type": "string", "enum": ["function"]},
            "function": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "arguments": {"type": "string", "description": "A JSON object as text."}
                },
                "required": ["name", "arguments"]
            }
        },
        "required": ["function"]
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A reply with its continuation signal",
        "type": "object",
        "properties": {
            "response": {"type": "string", "description": "What the user reads, in natural language."},
            "tool_calls": {
                "type": "array",
                "description": "Understood, but not asked for: run only where the envelope is the whole reply, in every form.",
                "items": call
            },
            "continuation": continuation(),
            "completion_percentage": {
                "type": "number",
                "description": "Older form of continuation.progress.completion_percentage."
            }
        },
        "required": ["continuation", "response"]
    })
}

/// Returns the `response_format` for models with structured output. Not strict: arguments of a next action may be any
/// object. Without `tool_calls`: such models are offered their tools natively.
pub fn response_format() -> Json {
    static FORMAT: LazyLock<Json> = LazyLock::new(|| {
        let mut schema = envelope();
        if let Some(fields) = schema.as_object_mut() {
            fields.remove("$schema");
            fields.remove("title");
        }
        if let Some(properties) = schema["properties"].as_object_mut() {
            properties.remove("tool_calls");
        }
        let named = json!({"name": SIGNAL_TOOL, "schema": schema, "strict": false});
        Json::of(&json!({"type": "json_schema", "json_schema": named}))
    });
    FORMAT.clone()
}

fn continuation() -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": ["CONTINUE", "TERMINATE"]},
            "reason": {"type": "string", "description": "Why, in a few words."},
            "confidence": {"type": "number"},
            "next_action": {
                "type": "object",
                "properties": {
                    "type": {"type": "string", "enum": ["tool_call", "reasoning", "planning"]},
                    "tool": {"type": "string"},
                    "parameters": {"type": "object"}
                }
            },
            "progress": {
                "type": "object",
                "properties": {
                    "current_step": {"type": "integer"},
                    "total_steps": {"type": "integer"},
                    "completion_percentage": {"type": "number"},
                    "steps_completed": {"type": "array", "items": {"type": "string"}},
                    "steps_remaining": {"type": "array", "items": {"type": "string"}}
                }
            }
        },
        "required": ["status"]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_format_has_the_signal_before_the_response_and_no_calls() {
        let format: Value = serde_json::from_str(response_format().get()).unwrap();
        let schema = &format["json_schema"]["schema"];
        let properties: Vec<&str> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(properties, ["completion_percentage", "continuation", "response"]);
        assert_eq!(schema["required"], json!(["continuation", "response"]));
    }

    #[test]
    fn published_schema_matches_the_code() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/continuation.schema.json");
        let written = serde_json::to_string_pretty(&envelope()).unwrap() + "\n";
        if std::env::var_os("UPDATE_PAGES").is_some() {
            std::fs::write(page, &written).unwrap();
        }
        assert_eq!(std::fs::read_to_string(page).unwrap_or_default(), written, "UPDATE_PAGES=1 writes it anew");
    }
}
