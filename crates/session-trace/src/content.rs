//! The messages of a turn, as the `GenAI` conventions write them into attributes.

use contract::event::{AiCutReceived, AiFullReceived, ToolCallResult, UserProcessed};
use serde_json::{Value, json};

/// Largest text of one attribute with content, in bytes.
const CONTENT_BYTES_MAX: usize = 32 * 1024;

/// The messages of a turn so far.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    all: Vec<Value>,
}

impl Messages {
    pub(crate) fn add_user(&mut self, message: &UserProcessed) {
        let content = serde_json::to_value(&message.content).unwrap_or_default();
        let parts = match content.as_str() {
            Some(text) => json!([{"type": "text", "content": text}]),
            None => content,
        };
        self.all.push(json!({"role": "user", "parts": parts}));
    }

    pub(crate) fn add_reply(&mut self, reply: &AiFullReceived) {
        self.all.push(reply_message(reply));
    }

    pub(crate) fn add_cut(&mut self, cut: &AiCutReceived) {
        let part = json!({"type": "text", "content": cut.text});
        self.all.push(json!({"role": "assistant", "parts": [part], "finish_reason": "cancelled"}));
    }

    pub(crate) fn add_result(&mut self, result: &ToolCallResult) {
        let part = json!({"type": "tool_call_response", "id": result.call, "response": result.content});
        self.all.push(json!({"role": "tool", "parts": [part]}));
    }

    pub(crate) fn to_text(&self) -> String {
        shorten(Value::Array(self.all.clone()).to_string())
    }
}

/// The reply alone, as a list of one message.
pub(crate) fn reply_text(reply: &AiFullReceived) -> String {
    shorten(Value::Array(vec![reply_message(reply)]).to_string())
}

fn reply_message(reply: &AiFullReceived) -> Value {
    let mut parts = Vec::new();
    if !reply.reasoning.is_empty() {
        parts.push(json!({"type": "reasoning", "content": reply.reasoning}));
    }
    if !reply.text.is_empty() {
        parts.push(json!({"type": "text", "content": reply.text}));
    }
    parts.extend(
        reply
            .tool_calls
            .iter()
            .map(|call| json!({"type": "tool_call", "id": call.id, "name": call.function.name, "arguments": call.function.arguments})),
    );
    json!({"role": "assistant", "parts": parts, "finish_reason": reply.finish_reason})
}

/// Cuts a text that is too long for an attribute.
pub(crate) fn shorten(mut text: String) -> String {
    if text.len() > CONTENT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(CONTENT_BYTES_MAX));
        text.push('…');
    }
    text
}
