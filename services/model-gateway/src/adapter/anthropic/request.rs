//! Builds Messages requests.

use std::collections::BTreeSet;

use contract::model::{Message, ModelItem, Part, ToolCall, ToolDefinition};
use serde_json::{Map, Value, json};

use super::REASONING_NAME;
use crate::adapter::transcript::{self, Image, ReplyItem, ToolChoice};
use crate::adapter::{ProtocolRequest, RequestTarget, wire};
use crate::failure::CallFailure;

/// Version of the protocol.
const VERSION: &str = "2023-06-01";
/// Default maximum tokens of a reply: the protocol requires a number.
const MAX_TOKENS: u64 = 4_096;
/// Default budget of thinking tokens; it is at most half of the reply.
const THINKING_TOKENS: u64 = 8_192;
/// Minimum budget that the protocol accepts.
const THINKING_TOKENS_MIN: u64 = 1_024;
/// Parameters that exclude thinking.
const SAMPLING: &[&str] = &["temperature", "top_p", "top_k"];
/// Parameters that have other names in this protocol.
const TRANSLATED: &[&str] = &["tool_choice", "max_tokens", "max_completion_tokens", "stop"];

pub(crate) fn build_request(item: &ModelItem, target: &RequestTarget<'_>) -> Result<ProtocolRequest, CallFailure> {
    let RequestTarget { model, signer_id, parameters, .. } = *target;
    let mut body = Map::new();
    for (name, value) in parameters.iter().filter(|(name, _)| !TRANSLATED.contains(&name.as_str())) {
        body.insert(name.clone(), value.clone());
    }
    let max = transcript::find_first(parameters, &["max_tokens", "max_completion_tokens"]);
    body.insert("model".to_owned(), json!(model));
    body.insert(
        "max_tokens".to_owned(),
        max.cloned().unwrap_or_else(|| json!(target.max_output.unwrap_or(MAX_TOKENS))),
    );
    body.insert("stream".to_owned(), json!(item.streaming.enabled));
    match transcript::find_first(parameters, &["stop"]) {
        Some(Value::String(stop)) => drop(body.insert("stop_sequences".to_owned(), json!([stop]))),
        Some(stop) => drop(body.insert("stop_sequences".to_owned(), stop.clone())),
        None => {}
    }
    let mut conversation = Conversation::default();
    for message in transcript::parse_messages(item, target.parts)? {
        conversation.add_message(message, signer_id);
    }
    if !conversation.system.is_empty() {
        body.insert("system".to_owned(), json!(conversation.system.join("\n\n")));
    }
    let (can_think, called) = (conversation.can_think(), std::mem::take(&mut conversation.called));
    body.insert("messages".to_owned(), Value::Array(conversation.into_messages()));
    let tools = transcript::parse_tools(item)?;
    let wanted = transcript::parse_tool_choice(parameters).filter(|_| !tools.is_empty());
    let is_forced = matches!(wanted, Some(ToolChoice::Required | ToolChoice::Named(_)));
    if target.reasoning && can_think && !is_forced && !SAMPLING.iter().any(|name| body.contains_key(*name)) {
        let max = body.get("max_tokens").and_then(Value::as_u64).unwrap_or(MAX_TOKENS);
        let budget = (max / 2).min(THINKING_TOKENS);
        if budget >= THINKING_TOKENS_MIN {
            let thinking = || json!({"type": "enabled", "budget_tokens": budget});
            body.entry("thinking").or_insert_with(thinking);
        }
    }
    if !tools.is_empty() {
        body.insert("tools".to_owned(), tools.iter().map(convert_tool).collect());
        body.insert("tool_choice".to_owned(), convert_choice(wanted, item.parallel_tool_calls));
    } else if !called.is_empty() {
        // The protocol refuses calls in a conversation without tools.
        let tool = |name: &String| json!({"name": name, "input_schema": {"type": "object"}});
        body.insert("tools".to_owned(), called.iter().map(tool).collect());
        body.insert("tool_choice".to_owned(), convert_choice(Some(ToolChoice::None), false));
    }
    if let Some(schema) = transcript::find_reply_schema(item) {
        wire::set_field(&mut body, "output_config", "format", json!({"type": "json_schema", "schema": schema}));
    }
    body.retain(|_, value| !value.is_null());
    let headers = vec![("anthropic-version", VERSION.to_owned())];
    Ok(ProtocolRequest { path: "/messages".to_owned(), headers, body: wire::encode(&body)? })
}

fn convert_tool(tool: &ToolDefinition) -> Value {
    json!({"name": tool.name, "description": tool.description, "input_schema": tool.parameters})
}

fn convert_choice(wanted: Option<ToolChoice>, parallel: bool) -> Value {
    match wanted.unwrap_or(ToolChoice::Auto) {
        ToolChoice::None => json!({"type": "none"}),
        ToolChoice::Auto => json!({"type": "auto", "disable_parallel_tool_use": !parallel}),
        ToolChoice::Required => json!({"type": "any", "disable_parallel_tool_use": !parallel}),
        ToolChoice::Named(name) => json!({"type": "tool", "name": name, "disable_parallel_tool_use": !parallel}),
    }
}

/// The conversation, in which user and assistant alternate: adjacent blocks of one role are one message. Tool results
/// belong to the user.
#[derive(Default)]
struct Conversation {
    system: Vec<String>,
    messages: Vec<(&'static str, Vec<Value>)>,
    /// Names of the tools that replies have called.
    called: BTreeSet<String>,
}

impl Conversation {
    fn add_message(&mut self, message: Message, signer_id: &str) {
        let mut add = |role, block| transcript::add_block(&mut self.messages, role, block);
        match message {
            Message::System { content } => self.system.push(content),
            Message::User { content } => {
                for part in transcript::into_parts(content) {
                    match part {
                        Part::Text { text } if text.is_empty() => {}
                        Part::Text { text } => add("user", json!({"type": "text", "text": text})),
                        Part::ImageUrl { image_url } => add("user", convert_image(&image_url.url)),
                    }
                }
            }
            Message::Assistant { content, reasoning: _, tool_calls, replay } => {
                self.called.extend(tool_calls.iter().map(|call| transcript::to_valid_name(&call.function.name)));
                for item in
                    transcript::order_reply_items(&content, &tool_calls, replay.as_ref(), (REASONING_NAME, signer_id))
                {
                    let block = match item {
                        ReplyItem::Reasoning(part) => part.clone(),
                        ReplyItem::Text(text) => json!({"type": "text", "text": text.trim_end()}),
                        ReplyItem::Call(call) => convert_call(call),
                    };
                    add("assistant", block);
                }
            }
            Message::Tool { tool_call_id, content } => {
                add("user", json!({"type": "tool_result", "tool_use_id": tool_call_id, "content": content}));
            }
        }
    }

    /// Whether the protocol allows thinking now: if the last message has tool results, the reply before must begin with
    /// a thinking block, which a reply of another model lacks.
    fn can_think(&self) -> bool {
        let [.., (_, reply), ("user", last)] = &self.messages[..] else { return true };
        let answers_calls = last.iter().any(|block| block["type"] == "tool_result");
        let begins = reply.first().and_then(|block| block["type"].as_str());
        !answers_calls || matches!(begins, Some("thinking" | "redacted_thinking"))
    }

    fn into_messages(self) -> Vec<Value> {
        self.messages.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
    }
}

fn convert_image(url: &str) -> Value {
    let source = match transcript::parse_image(url) {
        Image::Inline(kind, data) => json!({"type": "base64", "media_type": kind, "data": data}),
        Image::At(url) => json!({"type": "url", "url": url}),
    };
    json!({"type": "image", "source": source})
}

fn convert_call(call: &ToolCall) -> Value {
    json!({"type": "tool_use", "id": call.id, "name": transcript::to_valid_name(&call.function.name),
           "input": transcript::arguments_object(call)})
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
