//! Reads the transcript of an item, for protocols with other messages than the contract.

use std::sync::Arc;

use contract::Json;
use contract::model::{
    Content, FailureKind, Message, ModelItem, Part, ReasoningParts, ReplayPosition, ToolCall, ToolDefinition,
};
use serde_json::{Map, Value, json};

use crate::failure::CallFailure;
use crate::transcript_parts::{StoredPart, all_messages};

/// Parses the messages of an item, and those of the parts of its transcript.
pub(crate) fn parse_messages(item: &ModelItem, parts: &[Arc<StoredPart>]) -> Result<Vec<Message>, CallFailure> {
    let read = |raw: &Json| serde_json::from_str(raw.get()).map_err(|error| unreadable_failure("a message", &error));
    all_messages(item, parts).map(read).collect()
}

/// Parses the tools of an item. A tool without a schema takes an empty object.
pub(crate) fn parse_tools(item: &ModelItem) -> Result<Vec<ToolDefinition>, CallFailure> {
    item.tools.iter().map(parse_tool).collect()
}

pub(crate) fn parse_tool(raw: &Json) -> Result<ToolDefinition, CallFailure> {
    let mut tool: ToolDefinition =
        serde_json::from_str(raw.get()).map_err(|error| unreadable_failure("a tool", &error))?;
    if !tool.parameters.get().starts_with('{') {
        tool.parameters = Json::of(&json!({"type": "object", "properties": {}}));
    }
    Ok(tool)
}

/// Reasoning parts of a reply, if this protocol and signer wrote them.
pub(crate) fn find_reasoning_parts<'a>(replay: Option<&'a ReasoningParts>, family: &str, model: &str) -> &'a [Value] {
    find_own_parts(replay, family, model).map_or(&[], |replay| &replay.parts)
}

fn find_own_parts<'a>(replay: Option<&'a ReasoningParts>, family: &str, model: &str) -> Option<&'a ReasoningParts> {
    replay.filter(|replay| replay.family == family && replay.model == model)
}

/// An item of an earlier reply in a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ReplyItem<'a> {
    /// A reasoning part that the provider needs again.
    Reasoning(&'a Value),
    Text(&'a str),
    Call(&'a ToolCall),
}

/// Orders the items of a reply as they arrived. Reasoning parts are placed before text or a call, since providers
/// refuse them alone or at the end.
pub(crate) fn order_reply_items<'a>(
    content: &'a str,
    calls: &'a [ToolCall],
    replay: Option<&'a ReasoningParts>,
    (family, model): (&str, &str),
) -> Vec<ReplyItem<'a>> {
    let replay = find_own_parts(replay, family, model);
    let positions = replay.map_or(&[][..], |replay| &replay.positions);
    let positions = positions.iter().copied().chain(std::iter::repeat(ReplayPosition::default()));
    let mut parts = replay.map_or(&[][..], |replay| &replay.parts).iter().zip(positions).peekable();
    let mut items = Vec::new();
    // Providers refuse a text of only white space.
    if !content.trim().is_empty() {
        while let Some((part, _)) = parts.next_if(|(_, position)| !position.after_text && position.calls == 0) {
            items.push(ReplyItem::Reasoning(part));
        }
        items.push(ReplyItem::Text(content));
    }
    for (number, call) in (1..).zip(calls) {
        // The id of a call ends with its position in the reply. Positions may have gaps, since the orchestrator drops
        // some calls.
        let call_position = parse_call_position(call).filter(|position| *position > number).unwrap_or(number);
        while let Some((part, _)) = parts.next_if(|(_, position)| u64::from(position.calls) < call_position) {
            items.push(ReplyItem::Reasoning(part));
        }
        items.push(ReplyItem::Call(call));
    }
    items
}

/// Parses the position of a call in its reply, from 1.
pub(crate) fn parse_call_position(call: &ToolCall) -> Option<u64> {
    call.id.rsplit('-').next().and_then(|position| position.parse().ok())
}

/// The arguments of a call as an object. Invalid arguments are wrapped, since servers would refuse this and every later
/// request of the session otherwise. The error result of the call tells the model about it.
pub(crate) fn arguments_object(call: &ToolCall) -> Value {
    match serde_json::from_str::<Map<String, Value>>(&call.function.arguments) {
        Ok(object) => Value::Object(object),
        Err(_) if call.function.arguments.trim().is_empty() => json!({}),
        Err(_) => json!({"invalid_arguments": call.function.arguments}),
    }
}

/// Maximum characters of a tool's name that servers accept.
pub(crate) const NAME_CHARS_MAX: usize = 64;

/// Whether servers accept a tool's name unchanged.
pub(crate) fn is_valid_name(name: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(is_name_char)
}

/// Converts a tool's name to one that every server accepts.
pub(crate) fn to_valid_name(name: &str) -> String {
    let name: String = name.chars().map(|c| if is_name_char(c) { c } else { '_' }).take(NAME_CHARS_MAX).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// An image of a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Image<'a> {
    /// Media type, and bytes in base64.
    Inline(&'a str, &'a str),
    /// URL of a remote image.
    At(&'a str),
}

/// Parses the URL of an image.
pub(crate) fn parse_image(url: &str) -> Image<'_> {
    let inline = || {
        let (kind, bytes) = url.strip_prefix("data:")?.split_once(',')?;
        Some(Image::Inline(kind.strip_suffix(";base64")?, bytes))
    };
    inline().unwrap_or(Image::At(url))
}

/// The parts of a user message; a text is one part.
pub(crate) fn into_parts(content: Content) -> Vec<Part> {
    match content {
        Content::Text(text) => vec![Part::Text { text }],
        Content::Parts(parts) => parts,
    }
}

/// Adds a block to a conversation in which roles alternate: adjacent blocks of one role are one message.
pub(crate) fn add_block(messages: &mut Vec<(&'static str, Vec<Value>)>, role: &'static str, block: Value) {
    match messages.last_mut() {
        Some((last, blocks)) if *last == role => blocks.push(block),
        Some(_) | None => messages.push((role, vec![block])),
    }
}

/// Whether and which tools a model must call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    Auto,
    None,
    Required,
    Named(String),
}

/// Parses the tool choice of a session.
pub(crate) fn parse_tool_choice(parameters: &Map<String, Value>) -> Option<ToolChoice> {
    let wanted = parameters.get("tool_choice")?;
    match wanted.as_str() {
        Some("auto") => Some(ToolChoice::Auto),
        Some("none") => Some(ToolChoice::None),
        Some("required" | "any") => Some(ToolChoice::Required),
        Some(_) => None,
        None => wanted["function"]["name"].as_str().map(|name| ToolChoice::Named(name.to_owned())),
    }
}

/// The JSON Schema of the reply, if the item has one.
pub(crate) fn find_reply_schema(item: &ModelItem) -> Option<Value> {
    let format: Value = serde_json::from_str(item.response_format.as_ref()?.get()).ok()?;
    format["json_schema"].get("schema").cloned()
}

/// The first of these parameters that is present and not `null`.
pub(crate) fn find_first<'a>(parameters: &'a Map<String, Value>, names: &[&str]) -> Option<&'a Value> {
    names.iter().find_map(|name| parameters.get(*name).filter(|value| !value.is_null()))
}

/// The error has the position, but no content (I9).
pub(crate) fn unreadable_failure(what: &str, error: &serde_json::Error) -> CallFailure {
    CallFailure::new(
        FailureKind::BadRequest,
        format!("{what} cannot be read at line {} column {}", error.line(), error.column()),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use contract::CallId;
    use contract::model::{ImageUrl, ItemMeta, Streaming};

    use super::*;

    /// An item without messages, with one tool.
    pub(in crate::adapter) fn item() -> ModelItem {
        let meta = ItemMeta {
            v: 1,
            slot: 1,
            turn: 1,
            step: 1,
            call: CallId::model(1, 1),
            attempt: 1,
            deadline: contract::Timestamp::default(),
            agent: "a".to_owned(),
        };
        ModelItem {
            meta,
            model: "m".to_owned(),
            messages: Vec::new(),
            after: None,
            tools: vec![Json::of(&json!({"name": "f", "description": "d", "parameters": {"type": "object"}}))],
            parallel_tool_calls: true,
            parameters: Map::new(),
            response_format: None,
            streaming: Streaming::default(),
            signal: contract::model::SignalForm::Text,
            opened_by: String::new(),
        }
    }

    /// A conversation with each kind of message, and a reasoning part that `upstream` signed.
    pub(in crate::adapter) fn conversation(family: &str, part: Value) -> Vec<Json> {
        let picture = |url: &str| Part::ImageUrl { image_url: ImageUrl { url: url.to_owned() } };
        let result =
            |id: &str, content: &str| Message::Tool { tool_call_id: id.to_owned(), content: content.to_owned() };
        let replay = ReasoningParts {
            family: family.to_owned(),
            model: "upstream".to_owned(),
            parts: vec![part],
            positions: Vec::new(),
        };
        let messages = [
            Message::System { content: "be kind".to_owned() },
            Message::User {
                content: Content::Parts(vec![
                    Part::Text { text: "look".to_owned() },
                    picture("data:image/png;base64,AAAA"),
                    picture("https://example.org/a.png"),
                ]),
            },
            Message::Assistant {
                content: "So".to_owned(),
                reasoning: "Hm".to_owned(),
                tool_calls: vec![
                    ToolCall::new("c1-1-1", "f", "{\"a\":1}"),
                    ToolCall::new("c1-1-2", "no such.name", "{broken"),
                ],
                replay: Some(replay),
            },
            result("c1-1-1", "1"),
            result("c1-1-2", "2"),
            Message::User { content: Content::from("and now?") },
        ];
        messages.iter().map(Json::of).collect()
    }

    #[test]
    fn image_url_parsed_is_inline_or_remote() {
        assert_eq!(parse_image("data:image/png;base64,AAAA"), Image::Inline("image/png", "AAAA"));
        for url in ["https://example.org/a.png", "data:image/png,AAAA", "data:"] {
            assert_eq!(parse_image(url), Image::At(url));
        }
    }

    #[test]
    fn reasoning_parts_sent_again_keep_their_order_and_are_never_last() {
        let at = |after_text, calls| ReplayPosition { after_text, calls };
        let call = |position: u32| ToolCall::new(&format!("c1-1-{position}"), "f", "{}");
        let order = |content: &str, calls: &[ToolCall], positions: &[ReplayPosition], count: usize| {
            let parts = (0..count).map(|n| json!(n)).collect();
            let replay =
                ReasoningParts { family: "f".to_owned(), model: "m".to_owned(), parts, positions: positions.to_vec() };
            let show = |item: &ReplyItem<'_>| match item {
                ReplyItem::Reasoning(part) => part.to_string(),
                ReplyItem::Text(_) => "text".to_owned(),
                ReplyItem::Call(call) => format!("call {}", parse_call_position(call).unwrap_or_default()),
            };
            let items = order_reply_items(content, calls, Some(&replay), ("f", "m"));
            items.iter().map(show).collect::<Vec<_>>().join(" ")
        };
        let both = [call(1), call(2)];
        let spread = [at(false, 0), at(true, 0), at(true, 1), at(true, 2)];
        assert_eq!(order("so", &both, &spread, 4), "0 text 1 call 1 2 call 2");
        assert_eq!(order("", &both[1..], &spread, 4), "0 1 2 call 2");
        assert_eq!(order("so", &both, &[], 2), "0 1 text call 1 call 2");
        assert_eq!(order(" \n", &[], &spread, 4), "");
        assert_eq!(order("so", &[], &spread, 4), "0 text");
    }

    #[test]
    fn arguments_invalid_are_wrapped_in_an_object() {
        for (written, sent) in [
            ("{\"a\":1}", json!({"a": 1})),
            ("", json!({})),
            ("[1]", json!({"invalid_arguments": "[1]"})),
            ("{\"a\":", json!({"invalid_arguments": "{\"a\":"})),
        ] {
            assert_eq!(arguments_object(&ToolCall::new("c", "f", written)), sent);
        }
    }
}
