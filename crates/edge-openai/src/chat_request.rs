//! A request for a chat completion, and what of it an agent takes.

use contract::client_tool::{ClientOutcome, ClientTool};
use contract::model::Content;
use contract::{ErrorCode, Json};
use edge_core::api_error::ApiError;
use edge_core::turn::{ClientTurn, GivenResult, HistoryBuilder, OrphanedResult, client_tool, parse_call_id};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::function::{arguments_text, parts_text};

/// A request. Fields that an agent decides itself, such as `temperature`, are accepted and left out.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ChatRequest {
    pub(super) model: String,
    messages: Vec<ChatMessage>,
    pub(super) stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u32>,
    tools: Option<Vec<ToolEntry>>,
    metadata: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Deserialize)]
struct ToolEntry {
    #[serde(rename = "type")]
    kind: String,
    function: Option<FunctionEntry>,
}

#[derive(Debug, Clone, Deserialize)]
struct FunctionEntry {
    name: String,
    description: Option<String>,
    parameters: Option<Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Debug, Clone, Deserialize)]
struct ChatMessage {
    role: String,
    content: Option<ChatContent>,
    tool_calls: Option<Vec<ChatCall>>,
    /// The call of a reply, before there were `tool_calls`.
    function_call: Option<ChatFunction>,
    tool_call_id: Option<String>,
    /// The function of a result, before there were ids.
    name: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct ChatCall {
    id: Option<String>,
    #[serde(alias = "custom")]
    function: ChatFunction,
}

#[derive(Debug, Clone, Deserialize)]
struct ChatFunction {
    name: String,
    #[serde(default, alias = "input")]
    arguments: Value,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum ChatContent {
    Text(String),
    Parts(Vec<Value>),
}

impl ChatRequest {
    /// Parses a body, and refuses what no agent can do.
    pub(super) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let request: Self = serde_json::from_slice(body).map_err(ApiError::bad_request_by_parser)?;
        if request.n.is_some_and(|n| n != 1) {
            return Err(ApiError::bad_request("`n` must be 1: an agent gives one answer"));
        }
        Ok(request)
    }

    /// Whether the last chunk of a stream tells what was used.
    pub(super) fn has_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.include_usage)
    }

    /// Returns the tools that the client brings.
    pub(super) fn client_tools(&self) -> Result<Vec<ClientTool>, ApiError> {
        let entries = self.tools.iter().flatten().enumerate();
        let tools = entries.map(|(index, entry)| {
            let Some(function) = entry.function.as_ref().filter(|_| entry.kind == "function") else {
                return Err(ApiError::bad_request(format!("tools[{index}] must be a function")));
            };
            let FunctionEntry { name, description, parameters } = function;
            client_tool("tools.function.name", name, description.as_ref(), parameters.as_ref().map(Json::of))
        });
        tools.collect()
    }

    /// Returns the results with which the messages end, if all are of calls that an earlier answer gave to the client.
    /// Results of other calls are history.
    pub(super) fn call_results(&self) -> Vec<GivenResult> {
        let results = self.messages.iter().rev().take_while(|message| message.role == "tool").map(|message| {
            let id = message.tool_call_id.as_deref().unwrap_or_default();
            let (session, call) = parse_call_id("tool_call_id", id).ok()?;
            Some(GivenResult { session, call, outcome: ClientOutcome::Ok, content: message.text() })
        });
        let mut results: Vec<GivenResult> = results.collect::<Option<_>>().unwrap_or_default();
        results.reverse();
        results
    }

    /// Whether the messages end with results of calls.
    pub(super) fn ends_with_results(&self) -> bool {
        self.messages.last().is_some_and(|message| ["tool", "function"].contains(&message.role.as_str()))
    }

    /// Returns the session that the metadata names.
    pub(super) fn session(&self) -> Option<&str> {
        self.metadata.as_ref()?.get("session")?.as_str()
    }

    /// Takes the message with which the turn begins, and what comes before it as history. The session of a name mostly
    /// knows the history, so that a result whose call a client has dropped is no mistake.
    pub(super) fn turn(&self, is_named: bool) -> Result<ClientTurn, ApiError> {
        let mut history = HistoryBuilder::default();
        for (index, message) in self.messages.iter().enumerate() {
            match message.role.as_str() {
                "system" | "developer" => history.push_instructions(message.text()),
                "user" => {
                    if let Some(content) = &message.content {
                        history.push_user(to_content(index, content)?);
                    }
                }
                "assistant" => {
                    history.push_reply(message.text());
                    for call in message.tool_calls.iter().flatten() {
                        let id = call.id.as_deref().unwrap_or_default();
                        history.push_call(id, &call.function.name, &arguments_text(&call.function.arguments));
                    }
                    if let Some(call) = &message.function_call {
                        history.push_call(&call.name, &call.name, &arguments_text(&call.arguments));
                    }
                }
                "tool" | "function" => {
                    let id = message.tool_call_id.as_ref().or(message.name.as_ref());
                    let id = id.map_or("", String::as_str);
                    if history.push_result(id, message.text()) == Err(OrphanedResult) && !is_named {
                        let id: String = id.chars().take(80).collect();
                        return Err(ApiError::bad_request(format!(
                            "messages[{index}] is a result of {id:?}, which no message before it calls: send the message \
                             with the call too, or leave the result out"
                        )));
                    }
                }
                other => {
                    let other: String = other.chars().take(40).collect();
                    return Err(ApiError::bad_request(format!("messages[{index}].role is {other:?}")));
                }
            }
        }
        history.into_turn().ok_or_else(|| ApiError::new(ErrorCode::EmptyMessage, "`messages` has no message"))
    }
}

impl ChatMessage {
    /// Returns the content of a message that is a text in a session; other parts are named in it.
    fn text(&self) -> String {
        match &self.content {
            None => String::new(),
            Some(ChatContent::Text(text)) => text.clone(),
            Some(ChatContent::Parts(parts)) => parts_text(parts),
        }
    }
}

fn to_content(index: usize, content: &ChatContent) -> Result<Content, ApiError> {
    match content {
        ChatContent::Text(text) => Ok(Content::Text(text.clone())),
        ChatContent::Parts(parts) => {
            let parts: Result<Vec<_>, _> = parts.iter().map(|part| serde_json::from_value(part.clone())).collect();
            parts.map(Content::Parts).map_err(|error| {
                ApiError::bad_request(format!(
                    "messages[{index}].content has a part that an agent cannot take: {error}"
                ))
            })
        }
    }
}

#[cfg(test)]
#[path = "chat_request_tests.rs"]
mod tests;
