//! A whole reply, read.

use contract::event::Progress;
use contract::model::ToolCall;
use serde::Deserialize;
use serde_json::Value;

use crate::json;
use crate::split::{Found, Splitter};

/// The name of the pseudo-tool by which a model signals.
pub(crate) const NAME: &str = "continuation";

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
    /// Whether the word is one of the two that there are.
    pub fn is_known(&self) -> bool {
        self.status == Status::Continue || self.word.eq_ignore_ascii_case("TERMINATE")
    }

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
    /// Calls that the reply asks for without a native one: those of the envelope, else the next action. Never any of what
    /// had been broken off.
    pub calls: Vec<ToolCall>,
}

/// Whether a call is the pseudo-call that only signals.
pub fn is_signal(call: &ToolCall) -> bool {
    call.function.name == NAME
}

/// Reads a reply. The first that speaks is believed: the pseudo-call, then the envelope, whole or broken off.
pub fn read(text: &str, calls: &[ToolCall]) -> Reading {
    let mut splitter = Splitter::default();
    let mut visible = splitter.push(text);
    let (rest, envelope) = splitter.finish();
    visible.push_str(&rest);

    let pseudo = calls.iter().filter(|call| is_signal(call)).find_map(pseudo);
    let enveloped = || {
        let Found { value, repaired } = envelope.as_ref()?;
        Some((signal_of(&value["continuation"], &value["completion_percentage"])?, *repaired))
    };
    let signal = pseudo.or_else(enveloped);
    let native = calls.iter().any(|call| !is_signal(call));
    let mut asked = Vec::new();
    if !native {
        if let Some(Found { value, repaired: false }) = &envelope {
            asked = value["tool_calls"].as_array().into_iter().flatten().map(call_of).collect();
        }
        if let (true, Some((signal, false))) = (asked.is_empty(), &signal) {
            asked.extend(signal.next_action.as_ref().and_then(next_call));
        }
    }
    Reading { visible, signal: signal.map(|(signal, _)| signal), calls: asked }
}

/// The signal of a pseudo-call, and whether its arguments had been broken off.
fn pseudo(call: &ToolCall) -> Option<(Signal, bool)> {
    let arguments = &call.function.arguments;
    let (value, repaired) = match json::parse(arguments) {
        Some(value) => (value, false),
        None => (json::repair(arguments)?, true),
    };
    Some((signal_of(&value, &Value::Null)?, repaired))
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

/// A call of an envelope. What is missing stays empty: the loop answers it with an error that the model reads.
fn call_of(call: &Value) -> ToolCall {
    let function = &call["function"];
    let name = function["name"].as_str().unwrap_or_default();
    ToolCall::new("", name, &arguments(&function["arguments"]))
}

/// The next action as a call, where it says with what: a name alone announces a call of the next step.
fn next_call(next: &NextAction) -> Option<ToolCall> {
    let runs = next.kind == "tool_call" && next.parameters.is_object();
    let name = next.tool.as_deref().filter(|name| runs && !name.is_empty())?;
    Some(ToolCall::new("", name, &arguments(&next.parameters)))
}

/// Arguments as a native call has them: the text of an object.
fn arguments(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "{}".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}
