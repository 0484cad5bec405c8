//! Builds Responses requests.

use contract::model::{Message, ModelItem, Part, ToolCall};
use serde_json::{Map, Value, json};

use super::REASONING_NAME;
use crate::adapter::transcript::{self, ReplyItem, ToolChoice};
use crate::adapter::{ProtocolRequest, RequestTarget, wire};
use crate::failure::CallFailure;

/// Parameters that have other names in this protocol.
const TRANSLATED: &[&str] = &["tool_choice", "max_tokens", "max_completion_tokens", "reasoning_effort"];

/// Builds the request for an item. The provider stores nothing: it returns its reasoning encrypted for later requests.
pub(crate) fn build_request(item: &ModelItem, target: &RequestTarget<'_>) -> Result<ProtocolRequest, CallFailure> {
    let RequestTarget { model, signer_id, parameters, .. } = *target;
    let mut body = Map::new();
    for (name, value) in parameters.iter().filter(|(name, _)| !TRANSLATED.contains(&name.as_str())) {
        body.insert(name.clone(), value.clone());
    }
    body.insert("model".to_owned(), json!(model));
    body.insert("stream".to_owned(), json!(item.streaming.enabled));
    body.insert("store".to_owned(), json!(false));
    // Models without reasoning refuse this field.
    if target.reasoning {
        body.entry("include").or_insert_with(|| json!(["reasoning.encrypted_content"]));
    }
    let mut input = Vec::new();
    for message in transcript::parse_messages(item, target.parts)? {
        add_message(message, signer_id, &mut input);
    }
    body.insert("input".to_owned(), Value::Array(input));
    if let Some(max) = transcript::find_first(parameters, &["max_output_tokens", "max_completion_tokens", "max_tokens"])
    {
        body.insert("max_output_tokens".to_owned(), max.clone());
    }
    if let Some(effort) = transcript::find_first(parameters, &["reasoning_effort"]) {
        wire::set_field(&mut body, "reasoning", "effort", effort.clone());
    }
    let tools = transcript::parse_tools(item)?;
    if !tools.is_empty() {
        let tool = |tool: contract::model::ToolDefinition| {
            json!({"type": "function", "name": tool.name, "description": tool.description,
                   "parameters": tool.parameters, "strict": false})
        };
        body.insert("tools".to_owned(), tools.into_iter().map(tool).collect());
        body.insert("parallel_tool_calls".to_owned(), json!(item.parallel_tool_calls));
        if let Some(choice) = transcript::parse_tool_choice(parameters) {
            body.insert(
                "tool_choice".to_owned(),
                match choice {
                    ToolChoice::Auto => json!("auto"),
                    ToolChoice::None => json!("none"),
                    ToolChoice::Required => json!("required"),
                    ToolChoice::Named(name) => json!({"type": "function", "name": name}),
                },
            );
        }
    }
    if let Some(format) = item.response_format.as_ref().and_then(|format| flatten_format(format.get())) {
        wire::set_field(&mut body, "text", "format", format);
    }
    body.retain(|_, value| !value.is_null());
    let body = wire::encode(&body)?;
    Ok(ProtocolRequest { path: "/responses".to_owned(), headers: Vec::new(), body })
}

/// Removes the inner level of `{"type": "json_schema", "json_schema": {…}}`.
fn flatten_format(format: &str) -> Option<Value> {
    let format: Value = serde_json::from_str(format).ok()?;
    let Some(inner) = format["json_schema"].as_object() else { return Some(format) };
    let mut flat = inner.clone();
    flat.insert("type".to_owned(), json!("json_schema"));
    Some(Value::Object(flat))
}

fn add_message(message: Message, signer_id: &str, input: &mut Vec<Value>) {
    match message {
        Message::System { content } => input.push(json!({"role": "system", "content": content})),
        Message::User { content } => {
            let parts: Vec<Value> = transcript::into_parts(content).iter().map(convert_part).collect();
            input.push(json!({"role": "user", "content": parts}));
        }
        Message::Assistant { content, reasoning: _, tool_calls, replay } => {
            let items =
                transcript::order_reply_items(&content, &tool_calls, replay.as_ref(), (REASONING_NAME, signer_id));
            input.extend(items.into_iter().map(|item| match item {
                ReplyItem::Reasoning(part) => part.clone(),
                ReplyItem::Text(text) => json!({"role": "assistant", "content": text}),
                ReplyItem::Call(call) => convert_call(call),
            }));
        }
        Message::Tool { tool_call_id, content } => {
            input.push(json!({"type": "function_call_output", "call_id": tool_call_id, "output": content}));
        }
    }
}

fn convert_part(part: &Part) -> Value {
    match part {
        Part::Text { text } => json!({"type": "input_text", "text": text}),
        Part::ImageUrl { image_url } => json!({"type": "input_image", "image_url": image_url.url}),
    }
}

fn convert_call(call: &ToolCall) -> Value {
    let arguments = transcript::arguments_object(call).to_string();
    json!({"type": "function_call", "call_id": call.id, "name": transcript::to_valid_name(&call.function.name),
           "arguments": arguments})
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
