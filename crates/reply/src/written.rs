//! What an object of a reply says to the loop.

use contract::model::SignalForm;
use serde_json::Value;

use crate::read::NAME;
use crate::tolerant::{End, Object, is_status};

/// Fields of a signal, beside its status.
const FIELDS: &[&str] = &["status", "reason", "confidence", "next_action", "progress", "completion_percentage"];
/// Keys of which one makes an object a part of a signal.
const KEYS: &[&str] = &["continuation", "status", "response", "tool_calls"];

/// A signal as the model wrote it into its text.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// The envelope: `continuation`, and `response` and `tool_calls` where the session asked for them.
    pub value: Value,
    /// Whether it is not valid JSON, or was cut off: then nothing that it asks for is run.
    pub is_damaged: bool,
}

/// What an object is for the loop.
pub(crate) enum Meaning {
    /// A signal, or the whole reply in the form that the session asked for.
    Signal(Written),
    /// A part of a signal that says nothing: people do not read it either.
    Silent,
    /// Text for people.
    Text,
}

/// What an object means in a session that asked for signals in this form.
pub(crate) fn meaning(object: &Object, form: SignalForm) -> Meaning {
    let is_damaged = !object.is_valid || object.end != End::Closed;
    let value = &object.value;
    let written = |value: Value| Meaning::Signal(Written { value, is_damaged });
    let continuation = &value["continuation"];
    if has_status(continuation) {
        return written(restrict(value, form));
    }
    if let Some(word) = continuation.as_str().filter(|word| is_status(word)) {
        let signal = serde_json::json!({"continuation": {"status": word, "reason": value["reason"]}});
        return written(signal);
    }
    if is_bare(value) {
        return written(serde_json::json!({ "continuation": value }));
    }
    if let Some(arguments) = pseudo_arguments(value) {
        return written(serde_json::json!({ "continuation": arguments }));
    }
    if form == SignalForm::Envelope && (value["response"].is_string() || has_calls(value)) {
        return written(restrict(value, form));
    }
    let is_part =
        continuation.as_object().is_some_and(|fields| fields.keys().any(|key| FIELDS.contains(&key.as_str())));
    let is_cut = object.end == End::Open && is_cut_signal(object);
    if is_part || is_cut { Meaning::Silent } else { Meaning::Text }
}

/// Whether the text of an object holds a key of a signal.
pub(crate) fn mentions_signal(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    KEYS.iter().any(|key| text.contains(key))
}

fn has_status(continuation: &Value) -> bool {
    continuation["status"].as_str().is_some_and(|word| !word.trim().is_empty())
}

/// A signal without its envelope.
fn is_bare(value: &Value) -> bool {
    let Some(fields) = value.as_object() else { return false };
    value["status"].as_str().is_some_and(is_status) && fields.keys().all(|key| FIELDS.contains(&key.as_str()))
}

/// The pseudo-call, written as text.
fn pseudo_arguments(value: &Value) -> Option<Value> {
    let call = if value["function"].is_object() { &value["function"] } else { value };
    if call["name"].as_str()? != NAME {
        return None;
    }
    let arguments = if call["arguments"].is_null() { &call["parameters"] } else { &call["arguments"] };
    let arguments = match arguments {
        Value::String(text) => crate::tolerant::read(text.trim_start()).value,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => arguments.clone(),
    };
    has_status(&arguments).then_some(arguments)
}

fn has_calls(value: &Value) -> bool {
    let calls = value["tool_calls"].as_array();
    calls.is_some_and(|calls| calls.iter().any(|call| call["function"]["name"].is_string()))
}

/// The envelope without what the session did not ask for: calls count only in the form that has them.
fn restrict(value: &Value, form: SignalForm) -> Value {
    let mut value = value.clone();
    if let Some(fields) = value.as_object_mut().filter(|_| form != SignalForm::Envelope) {
        fields.remove("tool_calls");
    }
    value
}

/// Whether an object that was cut off began as a signal.
fn is_cut_signal(object: &Object) -> bool {
    let Some(fields) = object.value.as_object() else { return false };
    if fields.contains_key("continuation") {
        return fields["continuation"].is_null() || fields["continuation"].is_object();
    }
    let is_key = |cut: &str| ["continuation", "status"].iter().any(|key| key.starts_with(cut));
    let all_known = fields.keys().all(|key| FIELDS.contains(&key.as_str()) || key == "response");
    match &object.cut_key {
        Some(cut) => all_known && is_key(cut),
        None => fields.contains_key("status") && all_known || fields.is_empty(),
    }
}
