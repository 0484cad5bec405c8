//! From a model item to the body of a Messages request.

use contract::model::{Message, ModelItem, Part, ToolCall, ToolDefinition};
use serde_json::{Map, Value, json};

use super::FAMILY;
use crate::adapter::transcript::{self, Image, Piece, ToolChoice};
use crate::adapter::{Outgoing, Target, wire};
use crate::failure::Failure;

/// The version of the protocol that is spoken.
const VERSION: &str = "2023-06-01";
/// Tokens of a reply where nobody says how many: the protocol wants a number.
const MAX_TOKENS: u64 = 4_096;
/// Tokens that a model may think for where nobody says how many: at most half of its reply.
const THINKING_TOKENS: u64 = 8_192;
/// The fewest that the protocol takes.
const THINKING_TOKENS_MIN: u64 = 1_024;
/// Parameters that the protocol does not take from a model that thinks.
const SAMPLING: &[&str] = &["temperature", "top_p", "top_k"];
/// Parameters that are put in other words.
const TRANSLATED: &[&str] = &["tool_choice", "max_tokens", "max_completion_tokens", "stop"];

/// The request.
pub fn request(item: &ModelItem, target: &Target<'_>) -> Result<Outgoing, Failure> {
    let Target { model, voice, parameters, .. } = *target;
    let mut body = Map::new();
    for (name, value) in parameters.iter().filter(|(name, _)| !TRANSLATED.contains(&name.as_str())) {
        body.insert(name.clone(), value.clone());
    }
    let max = transcript::first(parameters, &["max_tokens", "max_completion_tokens"]);
    body.insert("model".to_owned(), json!(model));
    body.insert(
        "max_tokens".to_owned(),
        max.cloned().unwrap_or_else(|| json!(target.max_output.unwrap_or(MAX_TOKENS))),
    );
    body.insert("stream".to_owned(), json!(item.streaming.enabled));
    match transcript::first(parameters, &["stop"]) {
        Some(Value::String(stop)) => drop(body.insert("stop_sequences".to_owned(), json!([stop]))),
        Some(stop) => drop(body.insert("stop_sequences".to_owned(), stop.clone())),
        None => {}
    }
    let mut turns = Turns::default();
    for message in transcript::messages(item)? {
        turns.add(message, voice);
    }
    if !turns.system.is_empty() {
        body.insert("system".to_owned(), json!(turns.system.join("\n\n")));
    }
    let may_think = turns.may_think();
    body.insert("messages".to_owned(), Value::Array(turns.messages()));
    let tools = transcript::tools(item)?;
    let wanted = transcript::tool_choice(parameters).filter(|_| !tools.is_empty());
    let is_forced = matches!(wanted, Some(ToolChoice::Required | ToolChoice::Named(_)));
    if target.reasoning && may_think && !is_forced && !SAMPLING.iter().any(|name| body.contains_key(*name)) {
        let max = body.get("max_tokens").and_then(Value::as_u64).unwrap_or(MAX_TOKENS);
        let budget = (max / 2).min(THINKING_TOKENS);
        if budget >= THINKING_TOKENS_MIN {
            let thinking = || json!({"type": "enabled", "budget_tokens": budget});
            body.entry("thinking").or_insert_with(thinking);
        }
    }
    if !tools.is_empty() {
        body.insert("tools".to_owned(), tools.iter().map(tool).collect());
        body.insert("tool_choice".to_owned(), choice(wanted, item.parallel_tool_calls));
    }
    if let Some(schema) = transcript::schema(item) {
        wire::set(&mut body, "output_config", "format", json!({"type": "json_schema", "schema": schema}));
    }
    body.retain(|_, value| !value.is_null());
    let headers = vec![("anthropic-version", VERSION.to_owned())];
    Ok(Outgoing { path: "/messages".to_owned(), headers, body: wire::encode(&body)? })
}

fn tool(tool: &ToolDefinition) -> Value {
    json!({"name": tool.name, "description": tool.description, "input_schema": tool.parameters})
}

fn choice(wanted: Option<ToolChoice>, parallel: bool) -> Value {
    match wanted.unwrap_or(ToolChoice::Auto) {
        ToolChoice::None => json!({"type": "none"}),
        ToolChoice::Auto => json!({"type": "auto", "disable_parallel_tool_use": !parallel}),
        ToolChoice::Required => json!({"type": "any", "disable_parallel_tool_use": !parallel}),
        ToolChoice::Named(name) => json!({"type": "tool", "name": name, "disable_parallel_tool_use": !parallel}),
    }
}

/// The conversation, in which user and assistant take turns: what one of them says in a row is one message, and results
/// are the user's.
#[derive(Default)]
struct Turns {
    system: Vec<String>,
    said: Vec<(&'static str, Vec<Value>)>,
}

impl Turns {
    fn add(&mut self, message: Message, voice: &str) {
        match message {
            Message::System { content } => self.system.push(content),
            Message::User { content } => {
                for part in transcript::parts(content) {
                    match part {
                        Part::Text { text } if text.is_empty() => {}
                        Part::Text { text } => self.say("user", json!({"type": "text", "text": text})),
                        Part::ImageUrl { image_url } => self.say("user", picture(&image_url.url)),
                    }
                }
            }
            Message::Assistant { content, reasoning: _, tool_calls, replay } => {
                for piece in transcript::pieces(&content, &tool_calls, replay.as_ref(), (FAMILY, voice)) {
                    self.say(
                        "assistant",
                        match piece {
                            Piece::Replayed(part) => part.clone(),
                            Piece::Text(text) => json!({"type": "text", "text": text.trim_end()}),
                            Piece::Call(call) => call_of(call),
                        },
                    );
                }
            }
            Message::Tool { tool_call_id, content } => {
                self.say("user", json!({"type": "tool_result", "tool_use_id": tool_call_id, "content": content}));
            }
        }
    }

    fn say(&mut self, role: &'static str, block: Value) {
        match self.said.last_mut() {
            Some((last, blocks)) if *last == role => blocks.push(block),
            Some(_) | None => self.said.push((role, vec![block])),
        }
    }

    /// Whether the protocol lets the model think now: a reply whose results are the last that was said must begin with a
    /// thought, and one of another model has none.
    fn may_think(&self) -> bool {
        let [.., (_, reply), ("user", last)] = &self.said[..] else { return true };
        let answers_calls = last.iter().any(|block| block["type"] == "tool_result");
        let begins = reply.first().and_then(|block| block["type"].as_str());
        !answers_calls || matches!(begins, Some("thinking" | "redacted_thinking"))
    }

    fn messages(self) -> Vec<Value> {
        self.said.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
    }
}

fn picture(url: &str) -> Value {
    let source = match transcript::image(url) {
        Image::Inline(kind, data) => json!({"type": "base64", "media_type": kind, "data": data}),
        Image::At(url) => json!({"type": "url", "url": url}),
    };
    json!({"type": "image", "source": source})
}

fn call_of(call: &ToolCall) -> Value {
    json!({"type": "tool_use", "id": call.id, "name": transcript::name(&call.function.name),
           "input": transcript::arguments(call)})
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
