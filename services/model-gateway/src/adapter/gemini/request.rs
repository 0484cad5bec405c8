//! From a model item to the body of a generateContent request.

use std::collections::BTreeMap;

use contract::model::{FailureKind, Message, ModelItem, Part, ReasoningParts, ToolDefinition};
use serde_json::{Map, Value, json};

use super::FAMILY;
use crate::adapter::transcript::{self, Image, ToolChoice};
use crate::adapter::{Outgoing, Target, wire};
use crate::failure::Failure;

/// Parameters of a generation, in the words of chat completions and in Google's.
const GENERATION: &[(&str, &str)] = &[
    ("temperature", "temperature"),
    ("top_p", "topP"),
    ("top_k", "topK"),
    ("max_tokens", "maxOutputTokens"),
    ("max_completion_tokens", "maxOutputTokens"),
    ("stop", "stopSequences"),
    ("seed", "seed"),
    ("frequency_penalty", "frequencyPenalty"),
    ("presence_penalty", "presencePenalty"),
];
/// What stands for the signature of a reply's first call, where another model wrote it: without one it is refused.
const UNSIGNED: &str = "skip_thought_signature_validator";
/// Other parameters that are put in other words.
const TRANSLATED: &[&str] = &["tool_choice", "generationConfig"];

/// The request.
pub fn request(item: &ModelItem, target: &Target<'_>) -> Result<Outgoing, Failure> {
    let Target { model, voice, parameters, .. } = *target;
    let mut body = Map::new();
    let translated = |name: &str| TRANSLATED.contains(&name) || GENERATION.iter().any(|(ours, _)| *ours == name);
    for (name, value) in parameters.iter().filter(|(name, _)| !translated(name)) {
        body.insert(name.clone(), value.clone());
    }
    let mut turns = Turns::default();
    for message in transcript::messages(item)? {
        turns.add(message, voice);
    }
    if !turns.system.is_empty() {
        let parts: Vec<Value> = turns.system.iter().map(|text| json!({"text": text})).collect();
        body.insert("systemInstruction".to_owned(), json!({"parts": parts}));
    }
    body.insert("contents".to_owned(), turns.contents());
    let tools = transcript::tools(item)?;
    if !tools.is_empty() {
        let declared: Vec<Value> = tools.iter().map(tool).collect();
        body.insert("tools".to_owned(), json!([{"functionDeclarations": declared}]));
        if let Some(choice) = transcript::tool_choice(parameters) {
            body.insert("toolConfig".to_owned(), json!({"functionCallingConfig": choice_of(&choice)}));
        }
    }
    let generation = generation(item, target);
    if !generation.is_empty() {
        body.insert("generationConfig".to_owned(), Value::Object(generation));
    }
    body.retain(|_, value| !value.is_null());
    let verb = if item.streaming.enabled { "streamGenerateContent?alt=sse" } else { "generateContent" };
    let path = format!("/models/{}:{verb}", segments(model)?);
    Ok(Outgoing { path, headers: Vec::new(), body: wire::encode(&body)? })
}

/// A model's name as a part of an address. Clients choose it: it must lead to a model and nowhere else.
pub fn segments(model: &str) -> Result<&str, Failure> {
    let name = model.trim_start_matches("models/");
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '@' | '/');
    let whole = |segment: &str| !matches!(segment, "" | "." | "..");
    if name.chars().all(fits) && name.split('/').all(whole) {
        return Ok(name);
    }
    let shown: String = model.chars().take(80).collect();
    Err(Failure::new(FailureKind::BadRequest, format!("{shown:?} is no name of a model")))
}

fn generation(item: &ModelItem, target: &Target<'_>) -> Map<String, Value> {
    let parameters = target.parameters;
    let mut config = parameters.get("generationConfig").and_then(Value::as_object).cloned().unwrap_or_default();
    for (ours, theirs) in GENERATION {
        if let Some(value) = transcript::first(parameters, &[*ours]) {
            let value = if *ours == "stop" && value.is_string() { json!([value]) } else { value.clone() };
            config.insert((*theirs).to_owned(), value);
        }
    }
    if target.reasoning {
        // It reasons anyway, and says what only when asked.
        config.entry("thinkingConfig").or_insert_with(|| json!({"includeThoughts": true}));
    }
    if let Some(schema) = transcript::schema(item) {
        config.insert("responseMimeType".to_owned(), json!("application/json"));
        config.insert("responseJsonSchema".to_owned(), schema);
    }
    config
}

fn tool(tool: &ToolDefinition) -> Value {
    json!({"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters})
}

fn choice_of(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!({"mode": "AUTO"}),
        ToolChoice::None => json!({"mode": "NONE"}),
        ToolChoice::Required => json!({"mode": "ANY"}),
        ToolChoice::Named(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
    }
}

/// The conversation, in which user and model take turns; results are the user's, by the name of their function.
#[derive(Default)]
struct Turns {
    system: Vec<String>,
    said: Vec<(&'static str, Vec<Value>)>,
    names: BTreeMap<String, String>,
}

impl Turns {
    fn add(&mut self, message: Message, voice: &str) {
        match message {
            Message::System { content } => self.system.push(content),
            Message::User { content } => {
                for part in transcript::parts(content) {
                    self.say("user", user_part(&part));
                }
            }
            Message::Assistant { content, reasoning: _, tool_calls, replay } => {
                let signatures = Signatures::of(replay.as_ref(), voice);
                if !content.is_empty() {
                    self.say("model", signed(json!({"text": content}), signatures.text.as_ref()));
                }
                for (nth, call) in tool_calls.into_iter().enumerate() {
                    let name = transcript::name(&call.function.name);
                    let part = json!({"functionCall": {"name": name, "args": transcript::arguments(&call)}});
                    let unsigned = (nth == 0).then(|| json!(UNSIGNED));
                    self.say(
                        "model",
                        signed(
                            part,
                            signatures.calls.get(&transcript::place(&call).unwrap_or(0)).or(unsigned.as_ref()),
                        ),
                    );
                    self.names.insert(call.id, name);
                }
            }
            Message::Tool { tool_call_id, content } => {
                let name = self.names.get(&tool_call_id).cloned().unwrap_or_else(|| "unnamed".to_owned());
                let part = json!({"functionResponse": {"name": name, "response": {"result": content}}});
                self.say("user", part);
            }
        }
    }

    fn say(&mut self, role: &'static str, part: Value) {
        match self.said.last_mut() {
            Some((last, parts)) if *last == role => parts.push(part),
            Some(_) | None => self.said.push((role, vec![part])),
        }
    }

    fn contents(self) -> Value {
        self.said.into_iter().map(|(role, parts)| json!({"role": role, "parts": parts})).collect()
    }
}

/// What Google wants to see again on the parts that it signed.
#[derive(Default)]
struct Signatures {
    text: Option<Value>,
    /// By the place of a call in its reply, from 1.
    calls: BTreeMap<u64, Value>,
}

impl Signatures {
    fn of(replay: Option<&ReasoningParts>, voice: &str) -> Self {
        let mut signatures = Self::default();
        for part in transcript::replayed(replay, FAMILY, voice) {
            match part["call"].as_u64() {
                Some(place) => drop(signatures.calls.insert(place, part["thoughtSignature"].clone())),
                None => signatures.text = Some(part["thoughtSignature"].clone()),
            }
        }
        signatures
    }
}

fn signed(mut part: Value, signature: Option<&Value>) -> Value {
    if let Some(signature) = signature {
        part["thoughtSignature"] = signature.clone();
    }
    part
}

fn user_part(part: &Part) -> Value {
    match part {
        Part::Text { text } => json!({"text": text}),
        Part::ImageUrl { image_url } => match transcript::image(&image_url.url) {
            Image::Inline(kind, data) => json!({"inlineData": {"mimeType": kind, "data": data}}),
            Image::At(url) => json!({"fileData": {"fileUri": url}}),
        },
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
