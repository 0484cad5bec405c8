//! Builds chat-completions requests.

use std::borrow::Cow;
use std::sync::Arc;

use configuration::models::{Quirk, Quirks};
use contract::Json;
use contract::model::{Message, ModelItem, ToolCall, ToolDefinition};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::adapter::transcript::{is_valid_name, parse_tool, to_valid_name, unreadable_failure};
use crate::adapter::{ProtocolRequest, RequestTarget, wire};
use crate::failure::CallFailure;
use crate::transcript_parts::{StoredPart, around_parts};

/// A request without its messages.
#[derive(Serialize)]
struct Frame<'a> {
    model: &'a str,
    stream: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool>,
    #[serde(flatten)]
    options: Map<String, Value>,
}

/// Builds the request for an item. Parameters are sent unchanged.
pub(crate) fn build_request(item: &ModelItem, target: &RequestTarget<'_>) -> Result<ProtocolRequest, CallFailure> {
    let RequestTarget { model, quirks, parameters, parts, .. } = *target;
    let stream = item.streaming.enabled;
    let frame = Frame {
        model,
        stream,
        tools: item.tools.iter().map(build_tool).collect::<Result<_, _>>()?,
        options: collect_options(item, stream, quirks, parameters),
    };
    let messages = message_texts(item, parts, quirks)?;
    Ok(ProtocolRequest {
        path: "/chat/completions".to_owned(),
        headers: Vec::new(),
        body: add_messages(wire::encode(&frame)?, &messages),
    })
}

/// Adds the messages to the JSON of the other fields, of which there is at least one.
fn add_messages(mut body: Vec<u8>, texts: &[Cow<'_, str>]) -> Vec<u8> {
    const BEGIN: &[u8] = br#","messages":["#;
    body.reserve_exact(BEGIN.len() + texts.iter().map(|text| text.len() + 1).sum::<usize>() + 2);
    body.truncate(body.len().saturating_sub(1));
    body.extend_from_slice(BEGIN);
    for (position, text) in texts.iter().filter(|text| !text.is_empty()).enumerate() {
        if position > 0 {
            body.push(b',');
        }
        body.extend_from_slice(text.as_bytes());
    }
    body.extend_from_slice(b"]}");
    body
}

/// The texts of the messages. Those of a part, behind the first message, are one text, which was mostly written for an
/// earlier call: a long transcript is copied in large pieces.
fn message_texts<'a>(
    item: &'a ModelItem,
    parts: &'a [Arc<StoredPart>],
    quirks: &Quirks,
) -> Result<Vec<Cow<'a, str>>, CallFailure> {
    let (first, rest) = around_parts(item);
    let mut texts = Vec::with_capacity(item.messages.len() + parts.len());
    for raw in first {
        texts.push(convert_message(raw, quirks)?);
    }
    for part in parts {
        texts.push(part.chat_text(quirks, |messages| {
            let texts: Vec<_> = messages.iter().map(|raw| convert_message(raw, quirks)).collect::<Result<_, _>>()?;
            Ok::<_, CallFailure>(texts.join(","))
        })?);
    }
    for raw in rest {
        texts.push(convert_message(raw, quirks)?);
    }
    Ok(texts)
}

fn collect_options(
    item: &ModelItem,
    stream: bool,
    quirks: &Quirks,
    parameters: &Map<String, Value>,
) -> Map<String, Value> {
    let mut options = Map::new();
    if stream && !quirks.contains(&Quirk::NoStreamOptions) {
        options.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    // Send both `true` and `false`, since defaults of servers differ. OpenAI refuses the field without tools.
    if !item.tools.is_empty() && !quirks.contains(&Quirk::NoParallelToolCalls) {
        options.insert("parallel_tool_calls".to_owned(), json!(item.parallel_tool_calls));
    }
    if let Some(format) = &item.response_format {
        options.insert("response_format".to_owned(), serde_json::from_str(format.get()).unwrap_or_default());
    }
    options.extend(parameters.clone());
    if quirks.contains(&Quirk::MaxCompletionTokens)
        && let Some(max) = options.remove("max_tokens")
    {
        options.entry("max_completion_tokens").or_insert(max);
    }
    if quirks.contains(&Quirk::NoToolChoiceRequired)
        && options.get("tool_choice").is_some_and(|choice| choice != "none")
    {
        options.insert("tool_choice".to_owned(), json!("auto"));
    }
    options
}

#[derive(Serialize)]
struct Tool {
    r#type: &'static str,
    function: ToolDefinition,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Role {
    System,
    User,
    Assistant,
    Tool,
}

/// The fields that decide whether a message can be sent unchanged.
#[derive(Deserialize)]
struct MessageShape<'a> {
    role: Role,
    #[serde(default, borrow)]
    content: Option<&'a RawValue>,
    #[serde(default, borrow)]
    reasoning: Option<&'a RawValue>,
    #[serde(default, borrow)]
    replay: Option<&'a RawValue>,
    #[serde(default, borrow)]
    tool_calls: Vec<CallShape<'a>>,
}

#[derive(Deserialize)]
struct CallShape<'a> {
    #[serde(borrow)]
    function: FunctionShape<'a>,
}

#[derive(Deserialize)]
struct FunctionShape<'a> {
    #[serde(default, borrow)]
    name: Cow<'a, str>,
    #[serde(default, borrow)]
    arguments: Cow<'a, str>,
}

impl MessageShape<'_> {
    /// Whether the message has the shape of the protocol, as all but some assistant messages do.
    fn has_protocol_shape(&self) -> bool {
        let has_content = self.content.is_some_and(|content| content.get() != "\"\"");
        let is_sound = |call: &CallShape<'_>| is_valid_name(&call.function.name) && is_object(&call.function.arguments);
        self.role != Role::Assistant
            || has_content && self.reasoning.is_none() && self.replay.is_none() && self.tool_calls.iter().all(is_sound)
    }
}

/// Starts of messages that have the shape of the protocol, as the orchestrator writes them.
const PLAIN: &[&str] = &[r#"{"role":"tool","#, r#"{"role":"user","#, r#"{"role":"system","#];

/// The text of a message in the request. Most of them are sent as they are, without parsing them fully.
fn convert_message<'a>(raw: &'a Json, quirks: &Quirks) -> Result<Cow<'a, str>, CallFailure> {
    if PLAIN.iter().any(|begin| raw.get().starts_with(begin)) {
        return Ok(Cow::Borrowed(raw.get()));
    }
    let unreadable = |error| unreadable_failure("a message", &error);
    if serde_json::from_str::<MessageShape<'_>>(raw.get()).map_err(unreadable)?.has_protocol_shape() {
        return Ok(Cow::Borrowed(raw.get()));
    }
    match serde_json::from_str(raw.get()).map_err(unreadable)? {
        Message::Assistant { content, reasoning, tool_calls, replay: _ } => {
            let reasoning = if quirks.contains(&Quirk::ReplayReasoning) { reasoning } else { String::new() };
            Ok(Cow::Owned(build_assistant(&content, &reasoning, &tool_calls, quirks).to_string()))
        }
        Message::System { .. } | Message::User { .. } | Message::Tool { .. } => Ok(Cow::Borrowed(raw.get())),
    }
}

fn build_assistant(content: &str, reasoning: &str, calls: &[ToolCall], quirks: &Quirks) -> Value {
    let bare = content.is_empty() && !calls.is_empty() && !quirks.contains(&Quirk::EmptyContent);
    let content = if bare { Value::Null } else { content.into() };
    let mut message = json!({"role": "assistant", "content": content});
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.iter().map(build_call).collect();
    }
    message
}

/// Builds a call of the transcript. Invalid arguments are wrapped, since servers would refuse this and every later
/// request of the session otherwise. The error result of the call tells the model about it.
fn build_call(call: &ToolCall) -> Value {
    let function = &call.function;
    let arguments = match function.arguments.as_str() {
        text if is_object(text) => text.to_owned(),
        "" => "{}".to_owned(),
        text => json!({"invalid_arguments": text}).to_string(),
    };
    json!({"id": call.id, "type": "function", "function": {"name": to_valid_name(&function.name), "arguments": arguments}})
}

fn is_object(arguments: &str) -> bool {
    arguments.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(arguments).is_ok()
}

fn build_tool(raw: &Json) -> Result<Tool, CallFailure> {
    Ok(Tool { r#type: "function", function: parse_tool(raw)? })
}

#[cfg(test)]
mod tests {
    use contract::CallId;
    use contract::commit::TranscriptPart;
    use contract::model::{Content, FailureKind, ItemMeta, Streaming};

    use super::*;
    use crate::adapter::testing::target_of;

    fn item() -> ModelItem {
        ModelItem {
            signal: contract::model::SignalForm::Text,
            opened_by: String::new(),
            response_format: None,
            meta: ItemMeta {
                v: 1,
                slot: 1,
                turn: 1,
                step: 1,
                call: CallId::model(1, 1),
                attempt: 1,
                deadline: contract::Timestamp::default(),
                agent: "a".to_owned(),
            },
            model: "m".to_owned(),
            messages: vec![],
            after: None,
            tools: vec![],
            parallel_tool_calls: true,
            parameters: Map::new(),
            streaming: Streaming::default(),
        }
    }

    fn check(item: &ModelItem, expected: &Value) {
        let got: Value =
            serde_json::from_slice(&build_request(item, &target_of(item, "upstream")).unwrap().body).unwrap();
        assert_eq!(&got, expected);
    }

    #[test]
    fn request_with_parts_is_that_of_the_whole_transcript() {
        let assistant = |content: &str, reasoning: &str| Message::Assistant {
            content: content.to_owned(),
            reasoning: reasoning.to_owned(),
            tool_calls: vec![ToolCall::new("c1", "look", "{broken")],
            replay: None,
        };
        let mut item = item();
        let result = |n: u32| Message::Tool { tool_call_id: "c1".to_owned(), content: n.to_string() };
        let messages: Vec<Json> = [
            Message::System { content: "be kind".to_owned() },
            Message::User { content: Content::from("hi") },
            assistant("", "hm"),
            result(1),
            assistant("So.", ""),
            result(2),
        ]
        .iter()
        .map(Json::of)
        .collect();
        let part = |range: std::ops::Range<usize>| {
            let messages = messages[range].to_vec();
            Arc::new(StoredPart::new(TranscriptPart { messages, ..TranscriptPart::default() }))
        };
        let parts = [part(1..3), part(3..5)];
        let mut named = item.clone();
        named.messages = vec![messages[0].clone(), messages[5].clone()];
        item.messages = messages;
        let replays = Quirks::from_iter([Quirk::ReplayReasoning]);
        let none = Quirks::default();
        // Each of them twice, in turns: what is kept is of the first.
        for quirks in [&replays, &none, &replays, &none] {
            let whole = RequestTarget { quirks, ..target_of(&item, "upstream") };
            let body = |item: &ModelItem, target: &RequestTarget<'_>| {
                String::from_utf8(build_request(item, target).unwrap().body).unwrap()
            };
            assert_eq!(body(&named, &RequestTarget { parts: &parts, ..whole }), body(&item, &whole));
        }
    }

    #[test]
    fn messages_of_each_role_are_converted() {
        let parts = r#"{"role":"user","content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"data:x"}}]}"#;
        let mut item = item();
        item.messages = vec![
            Json::of(&Message::System { content: "be kind".to_owned() }),
            Json::of(&Message::User { content: Content::from("hi") }),
            Json::parse(parts).unwrap(),
            Json::of(&Message::Assistant {
                content: String::new(),
                reasoning: "hm".to_owned(),
                tool_calls: vec![
                    ToolCall::new("c1", "f", "{\"a\": 1.50}"),
                    ToolCall::new("c2", "", "{broken"),
                    ToolCall::new("c3", "no such.name", ""),
                ],
                replay: None,
            }),
            Json::of(&Message::Tool { tool_call_id: "c1".to_owned(), content: "1".to_owned() }),
            Json::of(&Message::Assistant {
                content: "so".to_owned(),
                reasoning: String::new(),
                tool_calls: vec![ToolCall::new("c4", "f", "{\"a\":[]}"), ToolCall::new("c5", "f", " {} ")],
                replay: None,
            }),
            Json::of(&Message::Assistant {
                content: "so".to_owned(),
                reasoning: String::new(),
                tool_calls: vec![ToolCall::new("c6", "f", "{\"a\":[]"), ToolCall::new("c7", "f", "[]")],
                replay: None,
            }),
            Json::of(&Message::Assistant {
                content: "done".to_owned(),
                reasoning: String::new(),
                tool_calls: vec![],
                replay: None,
            }),
            Json::of(&Message::Assistant {
                content: String::new(),
                reasoning: "h".to_owned(),
                tool_calls: vec![],
                replay: None,
            }),
        ];
        check(
            &item,
            &json!({"model": "upstream", "stream": true, "stream_options": {"include_usage": true}, "messages": [
                {"role": "system", "content": "be kind"},
                {"role": "user", "content": "hi"},
                serde_json::from_str::<Value>(parts).unwrap(),
                {"role": "assistant", "content": null, "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1.50}"}},
                    {"id": "c2", "type": "function",
                     "function": {"name": "unnamed", "arguments": "{\"invalid_arguments\":\"{broken\"}"}},
                    {"id": "c3", "type": "function", "function": {"name": "no_such_name", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "c1", "content": "1"},
                {"role": "assistant", "content": "so", "tool_calls": [
                    {"id": "c4", "type": "function", "function": {"name": "f", "arguments": "{\"a\":[]}"}},
                    {"id": "c5", "type": "function", "function": {"name": "f", "arguments": " {} "}},
                ]},
                {"role": "assistant", "content": "so", "tool_calls": [
                    {"id": "c6", "type": "function",
                     "function": {"name": "f", "arguments": "{\"invalid_arguments\":\"{\\\"a\\\":[]\"}"}},
                    {"id": "c7", "type": "function", "function": {"name": "f", "arguments": "{\"invalid_arguments\":\"[]\"}"}},
                ]},
                {"role": "assistant", "content": "done"},
                {"role": "assistant", "content": ""},
            ]}),
        );
    }

    #[test]
    fn tools_are_sent_with_parallel_tool_calls() {
        let mut item = item();
        let tool = |parameters: &str| {
            Json::parse(&format!(r#"{{"name":"f","description":"d","parameters":{parameters}}}"#)).unwrap()
        };
        item.tools = vec![tool(r#"{"type":"object","required":["a"]}"#), tool("null")];
        item.parallel_tool_calls = false;
        item.streaming.enabled = false;
        let function = |parameters: Value| json!({"type": "function", "function": {"name": "f", "description": "d", "parameters": parameters}});
        check(
            &item,
            &json!({"model": "upstream", "stream": false, "messages": [], "parallel_tool_calls": false, "tools": [
                function(json!({"type": "object", "required": ["a"]})),
                function(json!({"type": "object", "properties": {}})),
            ]}),
        );
    }

    #[test]
    fn parameters_are_sent_unchanged() {
        let mut item = item();
        let parameters = json!({"temperature": 0.5, "max_tokens": 7, "vendor": {"a": 1}});
        item.parameters = serde_json::from_value(parameters).unwrap();
        check(
            &item,
            &json!({"model": "upstream", "stream": true, "stream_options": {"include_usage": true}, "messages": [],
                    "temperature": 0.5, "max_tokens": 7, "vendor": {"a": 1}}),
        );
    }

    #[test]
    fn message_unreadable_fails_without_its_content() {
        let mut item = item();
        item.messages = vec![Json::parse(r#"{"role":"secret-role","content":"secret"}"#).unwrap()];
        let failure = build_request(&item, &target_of(&item, "m")).unwrap_err();
        assert_eq!(failure.kind, FailureKind::BadRequest);
        assert!(!failure.message.contains("secret"), "{}", failure.message);
    }
}
