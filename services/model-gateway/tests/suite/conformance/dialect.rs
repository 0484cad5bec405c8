//! Writes one reply in each protocol.

use model_gateway::adapter::ProviderProtocol;
use serde_json::{Value, json};

pub(crate) const PROTOCOLS: [ProviderProtocol; 4] = [
    ProviderProtocol::OpenaiChat,
    ProviderProtocol::OpenaiResponses,
    ProviderProtocol::Anthropic,
    ProviderProtocol::Gemini,
];

/// A reply with reasoning, text and calls, each streamed in deltas of `chunk_chars` characters.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) reasoning: String,
    pub(crate) text: String,
    pub(crate) calls: Vec<(String, Value)>,
    pub(crate) chunk_chars: usize,
}

impl Script {
    pub(crate) fn text(text: &str) -> Self {
        Self { reasoning: String::new(), text: text.to_owned(), calls: Vec::new(), chunk_chars: 3 }
    }

    /// A reply with reasoning, text and two calls.
    pub(crate) fn full() -> Self {
        Self {
            reasoning: "Hm, \u{1F914}.".to_owned(),
            text: "H\u{e9}llo \u{4f60}\u{597d}.".to_owned(),
            calls: vec![
                ("f".to_owned(), json!({"path": "a/\u{fc}", "deep": [1, {"x": null}]})),
                ("g".to_owned(), json!({"line": "a\r\n\"b\""})),
            ],
            chunk_chars: 3,
        }
    }

    fn split(&self, text: &str) -> Vec<String> {
        let characters: Vec<char> = text.chars().collect();
        characters.chunks(self.chunk_chars.max(1)).map(|chunk| chunk.iter().collect()).collect()
    }

    fn id(number: usize) -> String {
        format!("call_{number}")
    }

    /// The reply as the events of a stream.
    pub(crate) fn events(&self, protocol: ProviderProtocol) -> Vec<String> {
        let event = |value: &Value| match value["type"].as_str() {
            Some(name) => format!("event: {name}\ndata: {value}\n\n"),
            None => format!("data: {value}\n\n"),
        };
        let mut events: Vec<String> = match protocol {
            ProviderProtocol::OpenaiChat => self.chat(),
            ProviderProtocol::OpenaiResponses => self.responses(),
            ProviderProtocol::Anthropic => self.anthropic(),
            ProviderProtocol::Gemini => self.gemini(),
        }
        .iter()
        .map(event)
        .collect();
        if protocol == ProviderProtocol::OpenaiChat {
            events.push("data: [DONE]\n\n".to_owned());
        }
        events
    }

    pub(crate) fn stream(&self, protocol: ProviderProtocol) -> String {
        self.events(protocol).concat()
    }

    fn chat(&self) -> Vec<Value> {
        let choice = |delta: Value, finish: Value| {
            json!({"id": "r", "object": "chat.completion.chunk", "model": "m-1",
                   "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        };
        let mut events = vec![choice(json!({"role": "assistant", "content": ""}), Value::Null)];
        events.extend(
            self.split(&self.reasoning).into_iter().map(|t| choice(json!({"reasoning_content": t}), Value::Null)),
        );
        events.extend(self.split(&self.text).into_iter().map(|t| choice(json!({"content": t}), Value::Null)));
        for (number, (name, arguments)) in self.calls.iter().enumerate() {
            let call = json!({"index": number, "id": Self::id(number), "type": "function", "function": {"name": name, "arguments": ""}});
            events.push(choice(json!({"tool_calls": [call]}), Value::Null));
            for chunk in self.split(&arguments.to_string()) {
                let call = json!({"index": number, "function": {"arguments": chunk}});
                events.push(choice(json!({"tool_calls": [call]}), Value::Null));
            }
        }
        events.push(choice(json!({}), json!(if self.calls.is_empty() { "stop" } else { "tool_calls" })));
        events.push(json!({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 3}}}));
        events
    }

    fn responses(&self) -> Vec<Value> {
        let mut events =
            vec![json!({"type": "response.created", "response": {"model": "m-1", "status": "in_progress"}})];
        let mut index = 0;
        let mut item = |started: Value, deltas: Vec<Value>, whole: Value| {
            events.push(json!({"type": "response.output_item.added", "output_index": index, "item": started}));
            for mut delta in deltas {
                delta["output_index"] = index.into();
                events.push(delta);
            }
            events.push(json!({"type": "response.output_item.done", "output_index": index, "item": whole}));
            index += 1;
        };
        let deltas = |kind: &str, text: &str| -> Vec<Value> {
            self.split(text).into_iter().map(|chunk| json!({"type": kind, "delta": chunk})).collect()
        };
        if !self.reasoning.is_empty() {
            let whole =
                json!({"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": self.reasoning}]});
            item(
                json!({"type": "reasoning", "id": "rs", "summary": []}),
                deltas("response.reasoning_summary_text.delta", &self.reasoning),
                whole,
            );
        }
        if !self.text.is_empty() {
            let whole = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": self.text}]});
            let started = json!({"type": "message", "role": "assistant", "content": []});
            item(started, deltas("response.output_text.delta", &self.text), whole);
        }
        for (number, (name, arguments)) in self.calls.iter().enumerate() {
            let call = |arguments: &str| json!({"type": "function_call", "id": "fc", "call_id": Self::id(number), "name": name, "arguments": arguments});
            let arguments = arguments.to_string();
            item(call(""), deltas("response.function_call_arguments.delta", &arguments), call(&arguments));
        }
        events.push(
            json!({"type": "response.completed", "response": {"model": "m-1", "status": "completed", "error": null,
            "usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 7,
                      "output_tokens_details": {"reasoning_tokens": 3}}}}),
        );
        events
    }

    fn anthropic(&self) -> Vec<Value> {
        let mut events = vec![json!({"type": "message_start", "message": {"role": "assistant", "model": "m-1",
            "usage": {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 1}}})];
        let mut index = 0;
        let mut block = |started: Value, deltas: Vec<Value>| {
            events.push(json!({"type": "content_block_start", "index": index, "content_block": started}));
            events.extend(
                deltas.into_iter().map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta})),
            );
            events.push(json!({"type": "content_block_stop", "index": index}));
            index += 1;
        };
        let deltas = |kind: &str, field: &str, text: &str| -> Vec<Value> {
            self.split(text).into_iter().map(|chunk| json!({"type": kind, field: chunk})).collect()
        };
        if !self.reasoning.is_empty() {
            let mut all = deltas("thinking_delta", "thinking", &self.reasoning);
            all.push(json!({"type": "signature_delta", "signature": "c2ln"}));
            block(json!({"type": "thinking", "thinking": "", "signature": ""}), all);
        }
        if !self.text.is_empty() {
            block(json!({"type": "text", "text": ""}), deltas("text_delta", "text", &self.text));
        }
        for (number, (name, arguments)) in self.calls.iter().enumerate() {
            let started = json!({"type": "tool_use", "id": Self::id(number), "name": name, "input": {}});
            block(started, deltas("input_json_delta", "partial_json", &arguments.to_string()));
        }
        let reason = if self.calls.is_empty() { "end_turn" } else { "tool_use" };
        events.push(json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}}));
        events.push(json!({"type": "message_stop"}));
        events
    }

    fn gemini(&self) -> Vec<Value> {
        let parts = |parts: Value, finish: Option<&str>| {
            let mut value = json!({"candidates": [{"content": {"role": "model", "parts": parts}}], "modelVersion": "m-1",
                "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 4, "thoughtsTokenCount": 3, "cachedContentTokenCount": 4}});
            if let Some(finish) = finish {
                value["candidates"][0]["finishReason"] = finish.into();
            }
            value
        };
        let mut events: Vec<Value> = self
            .split(&self.reasoning)
            .into_iter()
            .map(|t| parts(json!([{"text": t, "thought": true}]), None))
            .collect();
        events.extend(self.split(&self.text).into_iter().map(|t| parts(json!([{"text": t}]), None)));
        for (number, (name, arguments)) in self.calls.iter().enumerate() {
            let call = json!({"functionCall": {"id": Self::id(number), "name": name, "args": arguments}});
            events.push(parts(json!([call]), None));
        }
        events.push(parts(json!([{"text": ""}]), Some("STOP")));
        events
    }

    pub(crate) fn whole(&self, protocol: ProviderProtocol) -> String {
        let calls = self.calls.iter().enumerate();
        let body = match protocol {
            ProviderProtocol::OpenaiChat => {
                let calls: Vec<Value> = calls
                    .map(|(number, (name, arguments))| {
                        json!({"id": Self::id(number), "type": "function",
                               "function": {"name": name, "arguments": arguments.to_string()}})
                    })
                    .collect();
                let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
                json!({"id": "r", "model": "m-1", "choices": [{"index": 0, "finish_reason": finish, "message":
                    {"role": "assistant", "content": self.text, "reasoning_content": self.reasoning, "tool_calls": calls}}],
                    "usage": {"prompt_tokens": 10, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 4},
                              "completion_tokens_details": {"reasoning_tokens": 3}}})
            }
            ProviderProtocol::OpenaiResponses => {
                let done = self.responses().into_iter().filter(|event| event["type"] == "response.output_item.done");
                let output: Vec<Value> = done.map(|event| event["item"].clone()).collect();
                let mut response = self.responses().pop().map(|event| event["response"].clone()).unwrap_or_default();
                response["output"] = output.into();
                response
            }
            ProviderProtocol::Anthropic => {
                let mut content = Vec::new();
                if !self.reasoning.is_empty() {
                    content.push(json!({"type": "thinking", "thinking": self.reasoning, "signature": "c2ln"}));
                }
                if !self.text.is_empty() {
                    content.push(json!({"type": "text", "text": self.text}));
                }
                content.extend(calls.map(|(number, (name, arguments))| {
                    json!({"type": "tool_use", "id": Self::id(number), "name": name, "input": arguments})
                }));
                let reason = if self.calls.is_empty() { "end_turn" } else { "tool_use" };
                json!({"type": "message", "role": "assistant", "model": "m-1", "content": content, "stop_reason": reason,
                    "usage": {"input_tokens": 6, "cache_read_input_tokens": 4, "output_tokens": 7}})
            }
            ProviderProtocol::Gemini => {
                let mut parts = Vec::new();
                for event in self.gemini() {
                    parts.extend(event["candidates"][0]["content"]["parts"].as_array().cloned().unwrap_or_default());
                }
                let mut whole = self.gemini().pop().unwrap_or_default();
                whole["candidates"][0]["content"]["parts"] = parts.into();
                whole
            }
        };
        body.to_string()
    }

    /// An error event of an overloaded provider.
    pub(crate) fn overloaded(protocol: ProviderProtocol) -> String {
        let value = match protocol {
            ProviderProtocol::OpenaiChat => json!({"error": {"message": "busy", "code": 503}}),
            ProviderProtocol::OpenaiResponses => {
                json!({"type": "error", "code": "server_is_overloaded", "message": "busy"})
            }
            ProviderProtocol::Anthropic => {
                json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})
            }
            ProviderProtocol::Gemini => json!({"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}}),
        };
        format!("data: {value}\n\n")
    }

    /// An event of an unknown type, or with unknown fields.
    pub(crate) fn unknown_event(protocol: ProviderProtocol) -> String {
        let value = match protocol {
            ProviderProtocol::OpenaiChat => json!({"object": "chat.completion.extra", "choices": [{"index": 0, "delta":
                {"hologram": {"x": 1}, "content": null}, "finish_reason": null, "logprobs": {"y": []}}], "service_tier": "on_demand"}),
            ProviderProtocol::OpenaiResponses => {
                json!({"type": "response.hologram.delta", "output_index": 99, "delta": {"x": 1}})
            }
            ProviderProtocol::Anthropic => {
                json!({"type": "content_block_delta", "index": 99, "delta": {"type": "hologram_delta", "x": 1}})
            }
            ProviderProtocol::Gemini => {
                json!({"candidates": [{"content": {"parts": [{"hologram": {"x": 1}}]}, "avgLogprobs": 1}],
                "promptFeedback": {"new": true}})
            }
        };
        format!(": keep-alive\n\nevent: hologram\nid: 7\nretry: 1\ndata: {value}\n\n")
    }
}
