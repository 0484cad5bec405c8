//! The input of a response: its items, as the history of a session and the message with which a turn begins.

use contract::ErrorCode;
use contract::model::{Content, HistoryMessage, ImageUrl, Part};
use edge_core::api_error::ApiError;
use edge_core::turn::{ClientTurn, HistoryBuilder, OrphanedResult};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::function::{arguments_text, parts_text};

/// Type of an item that stands for an earlier one.
pub(super) const REFERENCE: &str = "item_reference";
/// Fields of calls that have neither arguments nor input.
const ACTION_FIELDS: [&str; 3] = ["action", "queries", "code"];

/// Input of a request or of a new conversation.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Input {
    Text(String),
    Items(Vec<Value>),
}

#[derive(Debug, Clone, Deserialize)]
struct MessageItem {
    role: String,
    content: MessageContent,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum MessageContent {
    Text(String),
    Parts(Vec<ContentPart>),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentPart {
    #[serde(alias = "output_text", alias = "text")]
    InputText {
        text: String,
    },
    InputImage {
        image_url: String,
    },
    Refusal {
        refusal: String,
    },
}

impl MessageContent {
    fn into_content(self) -> Content {
        let parts = match self {
            Self::Text(text) => return Content::Text(text),
            Self::Parts(parts) => parts,
        };
        let parts = parts.into_iter().map(|part| match part {
            ContentPart::InputText { text } | ContentPart::Refusal { refusal: text } => Part::Text { text },
            ContentPart::InputImage { image_url } => Part::ImageUrl { image_url: ImageUrl { url: image_url } },
        });
        Content::Parts(parts.collect())
    }
}

/// Returns the items of an input with their types.
pub(super) fn items_of(input: &Input) -> Result<Vec<(&str, &Value)>, ApiError> {
    let Input::Items(items) = input else { return Ok(Vec::new()) };
    let kinds = items.iter().enumerate().map(|(index, item)| match item["type"].as_str() {
        Some(kind) => Ok((kind, item)),
        None if item.get("role").is_some() => Ok(("message", item)),
        None => Err(ApiError::bad_request(format!("input[{index}] has neither `type` nor `role`"))),
    });
    kinds.collect()
}

/// Returns the turn that an input asks for in a session of its own: all items are history.
pub(super) fn to_turn(input: &Input) -> Result<ClientTurn, ApiError> {
    let turn = build(input, add_item)?.into_turn();
    turn.ok_or_else(|| ApiError::new(ErrorCode::EmptyMessage, "`input` has no message"))
}

/// Returns the turn that an input asks for in a session that has its history: calls and results are left out.
pub(super) fn to_next_turn(input: &Input) -> Result<ClientTurn, ApiError> {
    let add = |history: &mut HistoryBuilder, _: usize, kind: &str, item: &Value| match kind {
        "message" => add_message(history, item),
        _ => Ok(()),
    };
    let turn = build(input, add)?.into_turn();
    turn.ok_or_else(|| ApiError::new(ErrorCode::EmptyMessage, "`input` must have a message"))
}

/// Returns all items of an input as the history of a session that begins without a turn.
pub(super) fn to_history(input: &Input) -> Result<Vec<HistoryMessage>, ApiError> {
    Ok(build(input, add_item)?.into_history())
}

fn build(
    input: &Input,
    add: impl Fn(&mut HistoryBuilder, usize, &str, &Value) -> Result<(), ApiError>,
) -> Result<HistoryBuilder, ApiError> {
    let mut history = HistoryBuilder::default();
    if let Input::Text(text) = input {
        history.push_user(Content::Text(text.clone()));
    }
    for (index, (kind, item)) in items_of(input)?.into_iter().enumerate() {
        add(&mut history, index, kind, item)?;
    }
    Ok(history)
}

fn add_item(history: &mut HistoryBuilder, index: usize, kind: &str, item: &Value) -> Result<(), ApiError> {
    match kind {
        "message" => return add_message(history, item),
        // What a model has thought is not repeated to another one; gates stand beside their calls.
        "reasoning" | "mcp_list_tools" | "mcp_approval_request" | "mcp_approval_response" => return Ok(()),
        _ => {}
    }
    let id = item["call_id"].as_str().or(item["id"].as_str()).unwrap_or_default();
    if kind.ends_with("_call_output") {
        return history.push_result(id, output_text(&item["output"])).map_err(|OrphanedResult| {
            let id: String = id.chars().take(80).collect();
            ApiError::bad_request(format!(
                "input[{index}] is a result of {id:?}, which no item before it calls: send the call too, or leave the \
                 result out"
            ))
        });
    }
    let Some(tool) = kind.strip_suffix("_call") else {
        let kind: String = kind.chars().take(40).collect();
        let message = format!("input[{index}] is a {kind:?}, which the history of a session cannot hold: leave it out");
        return Err(ApiError::bad_request(message));
    };
    let arguments = ["arguments", "input"].into_iter().find_map(|field| item.get(field)).map(arguments_text);
    let action = || {
        item.as_object().map(|item| {
            let fields = item.iter().filter(|(name, _)| ACTION_FIELDS.contains(&name.as_str()));
            Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect()).to_string()
        })
    };
    history.push_call(id, item["name"].as_str().unwrap_or(tool), &arguments.or_else(action).unwrap_or_default());
    // A call that the fleet has made has its result beside it.
    let result = ["output", "error"].into_iter().map(|field| &item[field]).find(|result| !result.is_null());
    match result {
        Some(result) => history
            .push_result(id, output_text(result))
            .map_err(|OrphanedResult| ApiError::bad_request(format!("input[{index}] is a call without an id"))),
        None => Ok(()),
    }
}

fn add_message(history: &mut HistoryBuilder, item: &Value) -> Result<(), ApiError> {
    let MessageItem { role, content } = read(item)?;
    let content = content.into_content();
    match role.as_str() {
        "user" => history.push_user(content),
        "assistant" => history.push_reply(content.text()),
        "system" | "developer" => history.push_instructions(content.text()),
        other => {
            let other: String = other.chars().take(40).collect();
            return Err(ApiError::bad_request(format!("a message of the input has the role {other:?}")));
        }
    }
    Ok(())
}

/// Returns the result of a call as a model reads it: text as it is, texts among parts, and anything else as JSON.
pub(super) fn output_text(output: &Value) -> String {
    match output {
        Value::String(text) => text.clone(),
        Value::Array(parts) if parts.iter().all(|part| part["type"].is_string()) => parts_text(parts),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => output.to_string(),
    }
}

/// Reads an item as one of its type.
pub(super) fn read<T: DeserializeOwned>(item: &Value) -> Result<T, ApiError> {
    T::deserialize(item).map_err(|error| {
        let kind = item["type"].as_str().unwrap_or("message");
        let kind: String = kind.chars().take(40).collect();
        ApiError::bad_request_by_parser(format!("an item {kind:?} of the input cannot be taken: {error}"))
    })
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
