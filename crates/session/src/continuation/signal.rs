//! The model's own signal: found in a reply and taken out of what the user reads.

use contract::Json;
use contract::event::Progress;
use contract::model::{ToolCall, ToolDefinition};
use serde::Deserialize;
use serde_json::Value;

/// The name of the pseudo-tool by which a model signals.
const NAME: &str = "continuation";

/// Go on, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Another step.
    Continue,
    /// The turn ends.
    Terminate,
}

/// What a model says about going on.
#[derive(Debug, Clone, PartialEq)]
pub struct Signal {
    /// Go on, or not. A word that we do not know means not.
    pub status: Status,
    /// The word as the model wrote it.
    pub word: String,
    /// Why.
    pub reason: String,
    /// What comes next.
    pub next_action: Option<NextAction>,
    /// How far the work is.
    pub progress: Option<Progress>,
}

/// What a model means to do next.
#[derive(Debug, Clone, PartialEq, Deserialize, Default)]
#[serde(default)]
pub struct NextAction {
    /// `tool_call`, `reasoning` or `planning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The tool.
    pub tool: Option<String>,
    /// Its arguments.
    pub parameters: Value,
}

impl Signal {
    /// What the loop says at the start of the step that follows.
    pub fn nudge(&self) -> String {
        let said = match self.reason.trim_end_matches('.') {
            "" => String::new(),
            reason => format!(" You said: {reason}."),
        };
        let next = match &self.next_action {
            Some(NextAction { kind, tool: Some(tool), .. }) if !kind.is_empty() => format!(" Next: {kind} ({tool})."),
            Some(NextAction { kind, tool: None, .. }) if !kind.is_empty() => format!(" Next: {kind}."),
            Some(_) | None => String::new(),
        };
        format!("Go on.{said}{next}")
    }
}

/// A reply, read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// What the user reads.
    pub visible: String,
    /// The signal.
    pub signal: Option<Signal>,
    /// Calls that the envelope asks for, where the reply has no native ones.
    pub calls: Vec<ToolCall>,
}

/// Whether a call is the pseudo-call that only signals.
pub fn is_signal(call: &ToolCall) -> bool {
    call.function.name == NAME
}

/// The pseudo-tool as it is offered to models.
pub fn definition() -> Json {
    let parameters = serde_json::json!({
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": ["CONTINUE", "TERMINATE"]},
            "reason": {"type": "string", "description": "Why, in a few words."},
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
    });
    Json::of(&ToolDefinition {
        name: NAME.to_owned(),
        description: "Says whether you go on working (CONTINUE) or are done (TERMINATE). The user never sees it."
            .to_owned(),
        parameters: Json::of(&parameters),
    })
}

/// Reads a reply. First that speaks: the pseudo-call; a JSON object as the whole text, in a code fence at the end, or
/// at the end of the text.
pub fn read(text: &str, calls: &[ToolCall]) -> Reading {
    let native = calls.iter().any(|call| !is_signal(call));
    let pseudo = calls
        .iter()
        .filter(|call| is_signal(call))
        .filter_map(|call| serde_json::from_str::<Value>(&call.function.arguments).ok())
        .find_map(|value| signal_of(&value, &Value::Null));
    let Some((before, envelope)) = envelope(text) else {
        return Reading { visible: text.to_owned(), signal: pseudo, calls: Vec::new() };
    };
    let response = envelope["response"].as_str().unwrap_or_default();
    let visible = match (before.is_empty(), response.is_empty()) {
        (true, _) => response.to_owned(),
        (false, true) => before.to_owned(),
        (false, false) => format!("{before}\n\n{response}"),
    };
    let signal = pseudo.or_else(|| signal_of(&envelope["continuation"], &envelope["completion_percentage"]));
    let calls =
        if native { Vec::new() } else { serde_json::from_value(envelope["tool_calls"].clone()).unwrap_or_default() };
    Reading { visible, signal, calls }
}

fn signal_of(value: &Value, percentage: &Value) -> Option<Signal> {
    let word = value["status"].as_str()?.trim();
    let status = if word.eq_ignore_ascii_case("CONTINUE") { Status::Continue } else { Status::Terminate };
    let mut progress: Option<Progress> = serde_json::from_value(value["progress"].clone()).ok();
    if let (Some(percentage), None) = (percentage.as_f64(), progress.as_ref().and_then(|p| p.completion_percentage)) {
        progress.get_or_insert_default().completion_percentage = Some(percentage);
    }
    Some(Signal {
        status,
        word: word.to_owned(),
        reason: value["reason"].as_str().unwrap_or_default().to_owned(),
        next_action: serde_json::from_value(value["next_action"].clone()).ok(),
        progress,
    })
}

/// The envelope at the end of a text and what stands before it. An object is an envelope when it says something that
/// only an envelope says.
fn envelope(text: &str) -> Option<(&str, Value)> {
    let trimmed = text.trim_end();
    let body = trimmed.strip_suffix("```").map_or(trimmed, str::trim_end);
    if !body.ends_with('}') {
        return None;
    }
    for (start, _) in body.char_indices().filter(|(_, c)| *c == '{') {
        let Ok(value) = serde_json::from_str::<Value>(&body[start..]) else { continue };
        let is_envelope = value["continuation"]["status"].is_string() || value["response"].is_string();
        if !is_envelope {
            return None;
        }
        let before = text[..start].trim_end();
        let before = before.strip_suffix("```json").or_else(|| before.strip_suffix("```")).unwrap_or(before);
        return Some((before.trim_end(), value));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_is_found_and_hidden() {
        let pseudo = ToolCall::new("x", "continuation", r#"{"status":"continue","reason":"more"}"#);
        let reading = read("Working.", &[pseudo]);
        assert_eq!(reading.visible, "Working.");
        assert_eq!(reading.signal.unwrap().status, Status::Continue);

        let rows = [
            (r#"{"response":"Hi","continuation":{"status":"TERMINATE"}}"#, "Hi", Some(Status::Terminate)),
            ("Done.\n```json\n{\"continuation\":{\"status\":\"Continue\"}}\n```\n", "Done.", Some(Status::Continue)),
            ("So {a} it is. {\"continuation\":{\"status\":\"later\"}}", "So {a} it is.", Some(Status::Terminate)),
            ("Here: {\"a\": 1}", "Here: {\"a\": 1}", None),
            ("{\"response\":\"x\"}", "x", None),
            ("", "", None),
        ];
        for (text, visible, status) in rows {
            let reading = read(text, &[]);
            assert_eq!((reading.visible.as_str(), reading.signal.map(|s| s.status)), (visible, status), "{text}");
        }
    }
}
