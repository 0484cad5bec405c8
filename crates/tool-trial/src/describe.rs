//! Describes a tool of the catalogue as text and as JSON.

use std::fmt::Write as _;

use contract::tool::{ApprovalPolicy, EffectClass, ToolSpec};
use serde_json::{Value, json};
use terminal::format;

/// Explains what happens if the tool or its caller fails during a call.
fn explain_effect(effect: EffectClass) -> &'static str {
    match effect {
        EffectClass::Pure => "it changes nothing: after a loss it is called again",
        EffectClass::Idempotent => {
            "it takes effect once per call id: after a loss it is called again under the same id"
        }
        EffectClass::AtMostOnce => {
            "it is never called again: after a loss the model is told that the outcome is unknown"
        }
        EffectClass::Reconcilable => "it is never called again: after a loss the tool is asked what became of the call",
    }
}

/// Describes a tool for people.
pub fn to_text(tool: &ToolSpec) -> String {
    let approval = match tool.approval {
        ApprovalPolicy::Never => "calls need no approval",
        ApprovalPolicy::Always => "a person must approve each call",
    };
    let rows = [
        ("tool", tool.name.to_string()),
        ("version", tool.version.clone()),
        ("effect", format!("{}: {}", tool.effect, explain_effect(tool.effect))),
        ("approval", format!("{}: {approval}", tool.approval.as_str())),
        ("time-out", format::duration(tool.timeout())),
        ("result", format!("the model reads up to {} bytes of it", format::count(tool.output_bytes_max() as u64))),
    ];
    let mut text = String::new();
    for (name, value) in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name:<10}{value}");
    }
    let schema = serde_json::from_str::<Value>(tool.parameters.get()).unwrap_or_default();
    let schema = serde_json::to_string_pretty(&schema).unwrap_or_default();
    for (title, body) in [
        ("description", tool.description.as_str()),
        ("instructions", tool.instructions.as_deref().unwrap_or_default()),
        ("parameters", &schema),
    ] {
        if !body.trim().is_empty() {
            let _ = writeln!(text, "\n{title}\n{}", indent(body));
        }
    }
    text
}

/// Describes a tool for programs.
pub fn to_json(tool: &ToolSpec) -> Value {
    json!({
        "name": tool.name, "description": tool.description, "effect": tool.effect, "approval": tool.approval,
        "timeout_ms": u64::try_from(tool.timeout().as_millis()).unwrap_or(u64::MAX), "version": tool.version,
        "max_output": tool.output_bytes_max(), "instructions": tool.instructions.as_deref().unwrap_or_default(),
        "parameters": tool.parameters,
    })
}

fn indent(text: &str) -> String {
    text.trim_end().lines().map(|line| format!("  {line}").trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use contract::{Json, ToolName};

    use super::*;

    #[test]
    fn description_as_text_and_json_has_all_fields() {
        let tool = ToolSpec {
            name: ToolName::new("note").unwrap(),
            description: "Keeps a note.\nFor later.".to_owned(),
            parameters: Json::of(&json!({"type": "object"})),
            effect: EffectClass::Idempotent,
            approval: ApprovalPolicy::Always,
            timeout_ms: Some(1_500),
            version: "1.2.3".to_owned(),
            max_output: Some(65_536),
            instructions: None,
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
