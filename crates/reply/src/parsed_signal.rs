//! Signals and calls in the objects of a reply.

use contract::model::{SIGNAL_TOOL, SignalForm};
use serde_json::{Map, Value, json};

use crate::tolerant::{End, Object, is_status};

/// Fields of a signal, beside its status.
const FIELDS: &[&str] = &["status", "reason", "confidence", "next_action", "progress", "completion_percentage"];
/// Keys of which one makes an object a part of a signal.
const KEYS: &[&str] = &["continuation", "status", "response", "tool_calls"];

/// A signal as the model wrote it into its text.
#[derive(Debug, Clone, PartialEq)]
pub struct ParsedSignal {
    /// The envelope: `continuation`, and `response` and `tool_calls` where it has them.
    pub value: Value,
    /// Whether it is not valid JSON, or was cut off: then nothing that it asks for is run.
    pub is_damaged: bool,
    /// Whether it is the whole reply, thoughts aside: only then its `tool_calls` are run.
    pub is_whole_reply: bool,
}

/// Meaning of an object for the loop.
pub(crate) enum Meaning {
    /// A signal, or an envelope that names one.
    Signal(ParsedSignal),
    /// Calls in an envelope without a signal: an example, unless they are the whole reply.
    Calls(ParsedSignal),
    /// A tool call that the model's server left in the text.
    UnreadCall,
    /// A part of a signal that says nothing: people do not read it either.
    Silent,
    /// No signal: text for people.
    Text,
}

/// Returns the meaning of an object in a session that asked for signals in this form. `is_first`: whether nothing
/// stands before the object, so that it can be the whole reply.
pub(crate) fn meaning(object: &Object, form: SignalForm, is_first: bool) -> Meaning {
    let is_damaged = !object.is_valid || object.end != End::Closed;
    let value = &object.value;
    let written = |value: Value| ParsedSignal { value, is_damaged, is_whole_reply: is_first };
    let signal = |value: Value| Meaning::Signal(written(value));
    let continuation = &value["continuation"];
    if has_status(continuation) {
        return signal(restrict(value.clone(), form));
    }
    if let Some(word) = continuation.as_str().filter(|word| is_status(word)) {
        let inner = json!({"status": word, "reason": value["reason"]});
        let mut value = value.clone();
        value["continuation"] = inner;
        return signal(restrict(value, form));
    }
    if is_bare(value) {
        return signal(json!({ "continuation": value }));
    }
    if let Some(arguments) = pseudo_arguments(value) {
        return signal(json!({ "continuation": arguments }));
    }
    if (form == SignalForm::Envelope || is_first && has_calls(value))
        && let Some(envelope) = flat(value)
    {
        return signal(envelope);
    }
    if form == SignalForm::Envelope {
        // A response alone is text: a user who asks for JSON may get such an object for an answer.
        if value["response"].is_string() && (names_signal(value) || is_cut_envelope(object)) {
            return signal(value.clone());
        }
        if is_first && has_calls(value) {
            return Meaning::Calls(written(value.clone()));
        }
    }
    let is_cut = object.end == End::Open && is_cut_signal(object);
    if is_part(continuation) || is_cut { Meaning::Silent } else { Meaning::Text }
}

/// Whether the text of an object holds a key of a signal.
pub(crate) fn mentions_signal(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    KEYS.iter().any(|key| text.contains(key))
}

/// Whether the value of `continuation` gives a status.
pub(crate) fn gives_status(continuation: &Value) -> bool {
    has_status(continuation) || continuation.as_str().is_some_and(is_status)
}

fn has_status(continuation: &Value) -> bool {
    continuation["status"].as_str().is_some_and(|word| !word.trim().is_empty())
}

/// Whether the value of `continuation` is a part of a signal.
fn is_part(continuation: &Value) -> bool {
    continuation.as_object().is_some_and(|fields| fields.keys().any(|key| FIELDS.contains(&key.as_str())))
}

/// Whether an object names the signal, though it gives no status.
fn names_signal(value: &Value) -> bool {
    value.get("continuation").is_some_and(|continuation| {
        let is_empty = continuation.as_object().is_some_and(Map::is_empty);
        continuation.is_null() || is_empty || is_part(continuation)
    })
}

/// A signal without its envelope.
fn is_bare(value: &Value) -> bool {
    let Some(fields) = value.as_object() else { return false };
    value["status"].as_str().is_some_and(is_status) && fields.keys().all(|key| FIELDS.contains(&key.as_str()))
}

/// An envelope in which the fields of the signal stand beside the response.
fn flat(value: &Value) -> Option<Value> {
    let is_flat = value["response"].is_string() && value["status"].as_str().is_some_and(is_status);
    let (mut envelope, mut signal) = (Map::new(), Map::new());
    for (key, field) in value.as_object().filter(|_| is_flat)? {
        let fields = match key.as_str() {
            "response" | "tool_calls" => &mut envelope,
            key if FIELDS.contains(&key) => &mut signal,
            _ => return None,
        };
        fields.insert(key.clone(), field.clone());
    }
    envelope.insert("continuation".to_owned(), Value::Object(signal));
    Some(Value::Object(envelope))
}

/// The pseudo-call, written as text.
fn pseudo_arguments(value: &Value) -> Option<Value> {
    let call = if value["function"].is_object() { &value["function"] } else { value };
    if call["name"].as_str()? != SIGNAL_TOOL {
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

/// A signal without calls that nobody asked for: where the session asked for no envelope, they count only in what is one,
/// with a response beside its status.
fn restrict(mut value: Value, form: SignalForm) -> Value {
    let is_envelope = form == SignalForm::Envelope || value["response"].is_string();
    if let Some(fields) = value.as_object_mut().filter(|_| !is_envelope) {
        fields.remove("tool_calls");
    }
    value
}

/// Whether an object that was cut off began as an envelope.
fn is_cut_envelope(object: &Object) -> bool {
    let is_known = |fields: &Map<String, Value>| fields.keys().all(|key| KEYS.contains(&key.as_str()));
    object.end == End::Open && (is_cut_signal(object) || object.value.as_object().is_some_and(is_known))
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
