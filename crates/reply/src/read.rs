//! A whole reply, read as the session asked for it.

use contract::event::Progress;
use contract::model::{SIGNAL_TOOL, SignalForm, ToolCall};
use serde::Deserialize;
use serde_json::Value;

use crate::parsed_signal::ParsedSignal;
use crate::progress::progress;
use crate::split::Splitter;
use crate::tolerant::{self, End};

/// Go on, or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The turn takes another step.
    Continue,
    /// The turn ends with this reply.
    Terminate,
}

/// Statement of a model about another step.
#[derive(Debug, Clone, PartialEq)]
pub struct Signal {
    /// Go on, or not. A word that we do not know means not.
    pub status: Status,
    /// The word as the model wrote it.
    pub word: String,
    /// Reason that the model gives.
    pub reason: String,
    /// Confidence of the model, from 0 to 1.
    pub confidence: Option<f64>,
    /// Next action that the model intends.
    pub next_action: Option<NextAction>,
    /// Progress that the model reports.
    pub progress: Option<Progress>,
}

/// Next action that a model intends.
#[derive(Debug, Clone, PartialEq, Deserialize, Default)]
#[serde(default)]
pub struct NextAction {
    /// `tool_call`, `reasoning` or `planning`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name of the tool that it means to call.
    pub tool: Option<String>,
    /// Arguments of the call.
    pub parameters: Value,
}

impl Signal {
    /// Whether the word is one of the two that there are.
    pub fn is_known(&self) -> bool {
        self.status == Status::Continue || self.word.eq_ignore_ascii_case("TERMINATE")
    }

    /// The loop's message at the start of the step that follows.
    pub fn nudge(&self) -> String {
        let reason = match self.reason.trim_end_matches('.') {
            "" => String::new(),
            reason => format!(" You said: {reason}."),
        };
        let next = match &self.next_action {
            Some(NextAction { kind, tool: Some(tool), .. }) if !kind.is_empty() => format!(" Next: {kind} ({tool})."),
            Some(NextAction { kind, tool: None, .. }) if !kind.is_empty() => format!(" Next: {kind}."),
            Some(_) | None => String::new(),
        };
        format!("Go on.{reason}{next}")
    }
}

/// A reply, split into text, signal and calls.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// Text that the user reads.
    pub visible: String,
    /// Offset in `visible`, in bytes, of the text after the last thought.
    pub spoken_from: usize,
    /// Thoughts of the model within its text, between tags.
    pub thought: String,
    /// The signal; none where the reply has none.
    pub signal: Option<Signal>,
    /// Calls that the reply asks for without a native one: those of an envelope that is the whole reply, else the next
    /// action. Never any of a signal that is damaged.
    pub calls: Vec<ToolCall>,
    /// Calls of an envelope that is the whole reply, beside native ones that are others. Nobody runs them, since only one
    /// of both can be meant; the model reads that.
    pub refused_calls: Vec<ToolCall>,
    /// Tool calls in tags, which the model's server should have read. Nobody runs them, and nobody reads them.
    pub unread_calls: usize,
}

impl Reading {
    /// Returns the visible text, without a thought that came before it.
    pub fn spoken(&self) -> &str {
        self.visible.get(self.spoken_from..).unwrap_or(&self.visible)
    }
}

/// Reads a reply of a session that asked for signals in this form. The first that speaks is believed: the pseudo-call,
/// then what stands in the text.
pub fn read(text: &str, calls: &[ToolCall], form: SignalForm) -> Reading {
    let mut splitter = Splitter::new(form);
    let mut visible = splitter.push(text);
    let rest = splitter.finish();
    visible.push_str(&rest.text);

    let written = rest.signal.as_ref();
    let pseudo = || calls.iter().filter(|call| call.is_signal()).find_map(pseudo);
    let in_text = || {
        let ParsedSignal { value, is_damaged, is_whole_reply: _ } = written?;
        Some((signal_of(&value["continuation"], value)?, *is_damaged))
    };
    let signal = if form == SignalForm::Off { None } else { pseudo().or_else(in_text) };
    let native: Vec<&ToolCall> = calls.iter().filter(|call| !call.is_signal()).collect();
    let mut asked = Vec::new();
    // An envelope among prose or in a fence is an example, or meant for people: its calls are not run.
    if let Some(ParsedSignal { value, is_damaged: false, is_whole_reply: true }) = written {
        let enveloped = value["tool_calls"].as_array().into_iter().flatten().map(call_of);
        asked.extend(enveloped.filter(|call| !call.is_signal() && !native.iter().any(|made| is_same(made, call))));
    }
    let refused_calls = if native.is_empty() { Vec::new() } else { std::mem::take(&mut asked) };
    if native.is_empty()
        && asked.is_empty()
        && let Some((signal, false)) = &signal
    {
        asked.extend(next_call(signal));
    }
    let signal = signal.map(|(signal, _)| signal);
    let (spoken_from, thought, unread_calls) = (rest.spoken_from, rest.thought, rest.unread_calls);
    Reading { visible, spoken_from, thought, signal, calls: asked, refused_calls, unread_calls }
}

/// Whether two calls are of one tool with the same arguments, however these are written.
fn is_same(one: &ToolCall, other: &ToolCall) -> bool {
    let value = |call: &ToolCall| serde_json::from_str::<Value>(&call.function.arguments).ok();
    one.function.name == other.function.name && value(one) == value(other)
}

/// The signal of a pseudo-call, and whether its arguments are damaged.
fn pseudo(call: &ToolCall) -> Option<(Signal, bool)> {
    let arguments = tolerant::read(call.function.arguments.trim_start());
    // Some models repeat the envelope's key in the arguments.
    let value =
        if arguments.value["continuation"].is_object() { &arguments.value["continuation"] } else { &arguments.value };
    let is_damaged = !arguments.is_valid || arguments.end != End::Closed;
    Some((signal_of(value, &Value::Null)?, is_damaged))
}

fn signal_of(value: &Value, envelope: &Value) -> Option<Signal> {
    let word = value["status"].as_str()?.trim();
    if word.is_empty() {
        return None;
    }
    let status = if word.eq_ignore_ascii_case("CONTINUE") { Status::Continue } else { Status::Terminate };
    Some(Signal {
        status,
        word: word.to_owned(),
        reason: value["reason"].as_str().unwrap_or_default().to_owned(),
        confidence: confidence(&value["confidence"]),
        next_action: serde_json::from_value(value["next_action"].clone()).ok(),
        progress: progress(value, envelope),
    })
}

/// Parses the confidence of a model: a fraction of one, a percentage, or `high`, `medium` or `low`.
fn confidence(value: &Value) -> Option<f64> {
    if let Some(word) = value.as_str() {
        match word.trim().to_ascii_lowercase().as_str() {
            "high" => return Some(0.9),
            "medium" => return Some(0.6),
            "low" => return Some(0.3),
            _ => {}
        }
    }
    let is_percent = value.as_str().is_some_and(|text| text.trim_end().ends_with('%'));
    let number = value.as_f64().or_else(|| value.as_str()?.trim().trim_end_matches('%').trim_end().parse().ok())?;
    let part = if is_percent || number > 1.0 { number / 100.0 } else { number };
    (0.0..=1.0).contains(&part).then_some(part)
}

/// A call of an envelope. What is missing stays empty: the loop answers it with an error that the model reads.
fn call_of(call: &Value) -> ToolCall {
    let function = &call["function"];
    let name = function["name"].as_str().unwrap_or_default();
    ToolCall::new("", name, &arguments(&function["arguments"]))
}

/// The next action as a call, where the model goes on with one. A model that is done runs nothing more.
fn next_call(signal: &Signal) -> Option<ToolCall> {
    let next = signal.next_action.as_ref().filter(|_| signal.status == Status::Continue)?;
    let runs = next.kind == "tool_call" && (next.parameters.is_object() || next.parameters.is_null());
    let name = next.tool.as_deref().filter(|name| runs && !name.is_empty() && *name != SIGNAL_TOOL)?;
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
