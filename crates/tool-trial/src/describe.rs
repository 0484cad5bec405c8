//! Describes a tool of the catalogue as text and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use contract::tool::EffectClass;
use proto::ToolInfo;
use serde_json::{Value, json};
use terminal::format;

/// Returns the name of an effect class, as in a tool's description.
pub const fn effect_name(effect: EffectClass) -> &'static str {
    match effect {
        EffectClass::Pure => "pure",
        EffectClass::Idempotent => "idempotent",
        EffectClass::AtMostOnce => "at_most_once",
        EffectClass::Reconcilable => "reconcilable",
    }
}

/// Explains what happens if the tool or its caller fails during a call.
fn explain_effect(effect: &str) -> &'static str {
    match effect {
        "pure" => "it changes nothing: after a loss it is called again",
        "idempotent" => "it takes effect once per call id: after a loss it is called again under the same id",
        "at_most_once" => "it is never called again: after a loss the model is told that the outcome is unknown",
        "reconcilable" => "it is never called again: after a loss the tool is asked what became of the call",
        _ => "unknown to this version",
    }
}

/// Describes a tool for people.
pub fn to_text(tool: &ToolInfo) -> String {
    let approval = match tool.approval.as_str() {
        "never" => "calls need no approval",
        "always" => "a person must approve each call",
        _ => "unknown to this version",
    };
    let rows = [
        ("tool", tool.name.clone()),
        ("version", tool.version.clone()),
        ("effect", format!("{}: {}", tool.effect, explain_effect(&tool.effect))),
        ("approval", format!("{}: {approval}", tool.approval)),
        ("time-out", format::duration(Duration::from_millis(tool.timeout_ms))),
        ("result", format!("the model reads up to {} bytes of it", format::count(tool.max_output))),
    ];
    let mut text = String::new();
    for (name, value) in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<10}{value}");
    }
    let schema = serde_json::from_str::<Value>(&tool.parameters_json).unwrap_or_default();
    let schema = serde_json::to_string_pretty(&schema).unwrap_or_default();
    for (title, body) in
        [("description", tool.description.as_str()), ("instructions", &tool.instructions), ("parameters", &schema)]
    {
        if !body.trim().is_empty() {
            let _ = writeln!(text, "\n{title}\n{}", indent(body));
        }
    }
    text
}

/// Describes a tool for programs.
pub fn to_json(tool: &ToolInfo) -> Value {
    json!({
        "name": tool.name, "description": tool.description, "effect": tool.effect, "approval": tool.approval,
        "timeout_ms": tool.timeout_ms, "version": tool.version, "max_output": tool.max_output,
        "instructions": tool.instructions,
        "parameters": serde_json::from_str::<Value>(&tool.parameters_json).unwrap_or_default(),
    })
}

fn indent(text: &str) -> String {
    text.trim_end().lines().map(|line| format!("  {line}").trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_as_text_and_json_has_all_fields() {
        let tool = ToolInfo {
            name: "note".to_owned(),
            description: "Keeps a note.\nFor later.".to_owned(),
            parameters_json: r#"{"type":"object"}"#.to_owned(),
            effect: "idempotent".to_owned(),
            approval: "always".to_owned(),
            timeout_ms: 1_500,
            version: "1.2.3".to_owned(),
            max_output: 65_536,
            instructions: String::new(),
        };
        assert_eq!(
            to_text(&tool),
            "tool      note\n\
             version   1.2.3\n\
             effect    idempotent: it takes effect once per call id: after a loss it is called again under the same id\n\
             approval  always: a person must approve each call\n\
             time-out  1.5 s\n\
             result    the model reads up to 65,536 bytes of it\n\
             \n\
             description\n  Keeps a note.\n  For later.\n\
             \n\
             parameters\n  {\n    \"type\": \"object\"\n  }\n"
        );
        assert_eq!(to_json(&tool)["parameters"], json!({"type": "object"}));
    }
}
