//! Builds generateContent requests.

use std::collections::BTreeMap;

use contract::model::{FailureKind, Message, ModelItem, Part, ReasoningParts, ToolDefinition};
use serde_json::{Map, Value, json};

use super::REASONING_NAME;
use crate::adapter::transcript::{self, Image, ToolChoice, add_block};
use crate::adapter::{ProtocolRequest, RequestTarget, wire};
use crate::failure::CallFailure;

/// Names of generation parameters in chat completions and at Google.
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
/// Replaces the signature of the first call of a reply that another model wrote: without one, Google refuses it.
const UNSIGNED: &str = "skip_thought_signature_validator";
/// Other parameters that are converted.
const TRANSLATED: &[&str] = &["tool_choice", "generationConfig"];

pub(crate) fn build_request(item: &ModelItem, target: &RequestTarget<'_>) -> Result<ProtocolRequest, CallFailure> {
    let RequestTarget { model, signer_id, parameters, .. } = *target;
    let mut body = Map::new();
    let translated = |name: &str| TRANSLATED.contains(&name) || GENERATION.iter().any(|(ours, _)| *ours == name);
    for (name, value) in parameters.iter().filter(|(name, _)| !translated(name)) {
        body.insert(name.clone(), value.clone());
    }
    let mut conversation = Conversation::default();
    for message in transcript::parse_messages(item, target.parts)? {
        conversation.add_message(message, signer_id);
    }
    if !conversation.system.is_empty() {
        let parts: Vec<Value> = conversation.system.iter().map(|text| json!({"text": text})).collect();
        body.insert("systemInstruction".to_owned(), json!({"parts": parts}));
    }
    body.insert("contents".to_owned(), conversation.into_contents());
    let tools = transcript::parse_tools(item)?;
    if !tools.is_empty() {
        let declared: Vec<Value> = tools.iter().map(convert_tool).collect();
        body.insert("tools".to_owned(), json!([{"functionDeclarations": declared}]));
        if let Some(choice) = transcript::parse_tool_choice(parameters) {
            body.insert("toolConfig".to_owned(), json!({"functionCallingConfig": convert_choice(&choice)}));
        }
    }
    let generation = build_generation_config(item, target);
    if !generation.is_empty() {
        body.insert("generationConfig".to_owned(), Value::Object(generation));
    }
    body.retain(|_, value| !value.is_null());
    let verb = if item.streaming.enabled { "streamGenerateContent?alt=sse" } else { "generateContent" };
    let path = format!("/models/{}:{verb}", check_model_path(model)?);
    Ok(ProtocolRequest { path, headers: Vec::new(), body: wire::encode(&body)? })
}

/// Checks a model's name as a part of a URL. Clients choose the name, so it must not lead to another path.
pub(crate) fn check_model_path(model: &str) -> Result<&str, CallFailure> {
    let name = model.trim_start_matches("models/");
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '@' | '/');
    let whole = |segment: &str| !matches!(segment, "" | "." | "..");
    if name.chars().all(fits) && name.split('/').all(whole) {
        return Ok(name);
    }
    let name_start: String = model.chars().take(80).collect();
    Err(CallFailure::new(FailureKind::BadRequest, format!("{name_start:?} is not a valid name of a model")))
}

fn build_generation_config(item: &ModelItem, target: &RequestTarget<'_>) -> Map<String, Value> {
    let parameters = target.parameters;
    let mut config = parameters.get("generationConfig").and_then(Value::as_object).cloned().unwrap_or_default();
    for (ours, theirs) in GENERATION {
        if let Some(value) = transcript::find_first(parameters, &[*ours]) {
            let value = if *ours == "stop" && value.is_string() { json!([value]) } else { value.clone() };
            config.insert((*theirs).to_owned(), value);
        }
    }
    if target.reasoning {
        // The model reasons anyway, and returns its thoughts only on request.
        config.entry("thinkingConfig").or_insert_with(|| json!({"includeThoughts": true}));
    }
    if let Some(schema) = transcript::find_reply_schema(item) {
        config.insert("responseMimeType".to_owned(), json!("application/json"));
        config.insert("responseJsonSchema".to_owned(), schema);
    }
    config
}

fn convert_tool(tool: &ToolDefinition) -> Value {
    json!({"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters})
}

fn convert_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!({"mode": "AUTO"}),
        ToolChoice::None => json!({"mode": "NONE"}),
        ToolChoice::Required => json!({"mode": "ANY"}),
        ToolChoice::Named(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
    }
}

/// The conversation, in which user and model alternate. Tool results belong to the user, and have the name of their
/// function.
#[derive(Default)]
struct Conversation {
    system: Vec<String>,
    messages: Vec<(&'static str, Vec<Value>)>,
    names: BTreeMap<String, String>,
}

impl Conversation {
    fn add_message(&mut self, message: Message, signer_id: &str) {
        match message {
            Message::System { content } => self.system.push(content),
            Message::User { content } => {
                for part in transcript::into_parts(content) {
                    add_block(&mut self.messages, "user", convert_part(&part));
                }
            }
            Message::Assistant { content, reasoning: _, tool_calls, replay } => {
                let signatures = Signatures::find(replay.as_ref(), signer_id);
                if !content.is_empty() {
                    let part = sign_part(json!({"text": content}), signatures.text.as_ref());
                    add_block(&mut self.messages, "model", part);
                }
                for (nth, call) in tool_calls.into_iter().enumerate() {
                    let name = transcript::to_valid_name(&call.function.name);
                    let part = json!({"functionCall": {"name": name, "args": transcript::arguments_object(&call)}});
                    let unsigned = (nth == 0).then(|| json!(UNSIGNED));
                    let position = transcript::parse_call_position(&call).unwrap_or(0);
                    let signature = signatures.calls.get(&position).or(unsigned.as_ref());
                    add_block(&mut self.messages, "model", sign_part(part, signature));
                    self.names.insert(call.id, name);
                }
            }
            Message::Tool { tool_call_id, content } => {
                let name = self.names.get(&tool_call_id).cloned().unwrap_or_else(|| "unnamed".to_owned());
                let part = json!({"functionResponse": {"name": name, "response": {"result": content}}});
                add_block(&mut self.messages, "user", part);
            }
        }
    }

    fn into_contents(self) -> Value {
        self.messages.into_iter().map(|(role, parts)| json!({"role": role, "parts": parts})).collect()
    }
}

/// Signatures that Google needs on the parts of earlier replies.
#[derive(Default)]
struct Signatures {
    text: Option<Value>,
    /// Signatures by the position of a call in its reply, from 1.
    calls: BTreeMap<u64, Value>,
}

impl Signatures {
    fn find(replay: Option<&ReasoningParts>, signer_id: &str) -> Self {
        let mut signatures = Self::default();
        for part in transcript::find_reasoning_parts(replay, REASONING_NAME, signer_id) {
            match part["call"].as_u64() {
                Some(position) => drop(signatures.calls.insert(position, part["thoughtSignature"].clone())),
                None => signatures.text = Some(part["thoughtSignature"].clone()),
            }
        }
        signatures
    }
}

fn sign_part(mut part: Value, signature: Option<&Value>) -> Value {
    if let Some(signature) = signature {
        part["thoughtSignature"] = signature.clone();
    }
    part
}

fn convert_part(part: &Part) -> Value {
    match part {
        Part::Text { text } => json!({"text": text}),
        Part::ImageUrl { image_url } => match transcript::parse_image(&image_url.url) {
            Image::Inline(kind, data) => json!({"inlineData": {"mimeType": kind, "data": data}}),
            Image::At(url) => json!({"fileData": {"fileUri": url}}),
        },
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
