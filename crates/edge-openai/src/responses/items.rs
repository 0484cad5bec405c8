//! Messages of a session as items of a conversation.

use contract::event::Event;
use contract::model::{Content, Message, Part};
use contract::spent::Spent;
use edge_core::api_error::ApiError;
use edge_core::turn::name_for_client;
use serde_json::{Value, json};
use session::readable::{ReadableCall, ReadableMessage, ReadableTurn};

use crate::errors::unknown;
use crate::function::SERVER_LABEL;

/// Items of one page, and the default.
const PAGE_MAX: usize = 100;
const PAGE_DEFAULT: usize = 20;

/// Returns a message of the user that an event has.
pub(super) fn of_event(event: &Event) -> Option<Value> {
    let Event::UserProcessed(message) = event else { return None };
    Some(user(&message.content))
}

/// Returns the items of messages that came with the start of a session.
pub(super) fn of_messages(messages: &[Message]) -> Vec<Value> {
    messages.iter().flat_map(of_earlier_message).collect()
}

fn of_earlier_message(message: &Message) -> Vec<Value> {
    match message {
        Message::User { content } => vec![user(content)],
        Message::Assistant { content, tool_calls, .. } => {
            let calls = tool_calls.iter().filter(|call| !call.is_signal()).map(|call| {
                let name = name_for_client(&call.function.name);
                json!({
                    "type": "function_call", "call_id": call.id, "name": name, "arguments": call.function.arguments,
                    "status": "completed",
                })
            });
            let reply = (!content.is_empty()).then(|| assistant(content, false));
            reply.into_iter().chain(calls).collect()
        }
        Message::Tool { tool_call_id, content } => {
            vec![
                json!({"type": "function_call_output", "call_id": tool_call_id, "output": content, "status": "completed"}),
            ]
        }
        Message::System { .. } => Vec::new(),
    }
}

/// Returns the items of a turn.
pub(super) fn of_turn(turn: &ReadableTurn) -> Vec<Value> {
    turn.messages.iter().flat_map(of_message).collect()
}

fn of_message(message: &ReadableMessage) -> Vec<Value> {
    match message {
        ReadableMessage::User { text, .. } => vec![user(&Content::Text(text.clone()))],
        ReadableMessage::Assistant { text, cut, tool_calls, .. } => {
            let reply = (!text.is_empty()).then(|| assistant(text, *cut));
            reply.into_iter().chain(tool_calls.iter().map(of_call)).collect()
        }
    }
}

fn of_call(call: &ReadableCall) -> Value {
    let status = if call.outcome.is_some() { "completed" } else { "in_progress" };
    json!({
        "type": "mcp_call", "server_label": SERVER_LABEL, "name": call.tool, "arguments": call.arguments,
        "status": status, "output": call.result, "error": null, "approval_request_id": null,
    })
}

fn user(content: &Content) -> Value {
    let parts: Vec<Value> = match content {
        Content::Text(text) => vec![json!({"type": "input_text", "text": text})],
        Content::Parts(parts) => parts.iter().map(of_part).collect(),
    };
    json!({"type": "message", "role": "user", "status": "completed", "content": parts})
}

fn of_part(part: &Part) -> Value {
    match part {
        Part::Text { text } => json!({"type": "input_text", "text": text}),
        Part::ImageUrl { image_url } => json!({"type": "input_image", "image_url": image_url.url, "detail": "auto"}),
    }
}

fn assistant(text: &str, is_cut: bool) -> Value {
    let status = if is_cut { "incomplete" } else { "completed" };
    let part = json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
    json!({"type": "message", "role": "assistant", "status": status, "content": [part]})
}

/// Gives an item its id.
pub(super) fn with_id(mut item: Value, id: &str) -> Value {
    item["id"] = json!(id);
    item
}

/// Makes a list of items.
pub(crate) fn page(data: &[Value], has_more: bool) -> Value {
    json!({
        "object": "list", "first_id": data.first().map(|item| &item["id"]), "last_id": data.last().map(|item| &item["id"]),
        "has_more": has_more, "data": data,
    })
}

/// Returns the tokens that were used.
pub(crate) fn usage(spent: &Spent) -> Value {
    let usage = &spent.usage;
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    })
}

/// Query for a page of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PageQuery {
    pub(crate) after: Option<String>,
    pub(crate) limit: usize,
    pub(crate) is_ascending: bool,
}

impl PageQuery {
    /// Parses the query of a request for a list.
    pub(crate) fn parse(query: &str) -> Result<Self, ApiError> {
        let mut parsed = Self { after: None, limit: PAGE_DEFAULT, is_ascending: false };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                "after" => parsed.after = Some(value.into_owned()),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
                    let message = format!("`limit` must be a number from 1 to {PAGE_MAX}");
                    parsed.limit = limit.ok_or_else(|| ApiError::bad_request(message))?;
                }
                "order" => parsed.is_ascending = value == "asc",
                _ => {}
            }
        }
        Ok(parsed)
    }

    /// Makes the page of a list whose items are in the order of time.
    pub(crate) fn page(&self, mut data: Vec<Value>) -> Result<Value, ApiError> {
        if !self.is_ascending {
            data.reverse();
        }
        if let Some(after) = &self.after {
            let place = data.iter().position(|item| item["id"].as_str() == Some(after.as_str()));
            let place = place.ok_or_else(|| unknown("item", after))?;
            data.drain(..=place);
        }
        let has_more = data.len() > self.limit;
        data.truncate(self.limit);
        Ok(page(&data, has_more))
    }
}

#[cfg(test)]
mod tests {
    use contract::model::ToolCall;

    use super::*;

    #[test]
    fn messages_of_a_start_are_items_with_calls_and_results() {
        let messages = [
            Message::User { content: Content::from("Look.") },
            Message::Assistant {
                content: String::new(),
                reasoning: String::new(),
                tool_calls: vec![ToolCall::new("h2-1", "client_ask_user", "{}")],
                replay: None,
            },
            Message::Tool { tool_call_id: "h2-1".to_owned(), content: "SECRET-42".to_owned() },
        ];
        let items = of_messages(&messages);
        assert_eq!((items.len(), &items[0]["role"]), (3, &json!("user")));
        assert_eq!(
            items[1..],
            [
                json!({
                    "type": "function_call", "call_id": "h2-1", "name": "ask_user", "arguments": "{}",
                    "status": "completed",
                }),
                json!({
                    "type": "function_call_output", "call_id": "h2-1", "output": "SECRET-42", "status": "completed",
                }),
            ]
        );
    }

    #[test]
    fn pages_follow_one_another_in_both_orders() {
        let data: Vec<Value> = (0..5).map(|number| json!({"id": format!("i{number}")})).collect();
        let ids = |query: &str| {
            let page = PageQuery::parse(query).unwrap().page(data.clone()).unwrap();
            let ids = page["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned());
            (ids.collect::<Vec<_>>().join(" "), page["has_more"] == true)
        };
        assert_eq!(ids("limit=2&order=asc"), ("i0 i1".to_owned(), true));
        assert_eq!(ids("limit=3&order=asc&after=i1"), ("i2 i3 i4".to_owned(), false));
        assert_eq!(ids("limit=2&after=i3"), ("i2 i1".to_owned(), true));
        assert!(PageQuery::parse("after=x").unwrap().page(data.clone()).is_err());
        assert!(PageQuery::parse("limit=0").is_err());
    }
}
