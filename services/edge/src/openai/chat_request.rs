//! A request for a chat completion, and what of it an agent takes.

use contract::ErrorCode;
use contract::client_tool::{ClientOutcome, ClientTool};
use contract::model::{Content, Message};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::function::to_client_tool;
use crate::api_error::ApiError;
use crate::turn::{CallResult, add_instructions, parse_call_id};

/// A request. Fields that an agent decides itself, such as `temperature`, are accepted and left out.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ChatRequest {
    pub(super) model: String,
    messages: Vec<ChatMessage>,
    #[serde(default)]
    pub(super) stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    n: Option<u32>,
    #[serde(default)]
    tools: Option<Vec<ToolEntry>>,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
}

#[derive(Debug, Clone, Deserialize)]
struct ToolEntry {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    function: Option<FunctionEntry>,
}

#[derive(Debug, Clone, Deserialize)]
struct FunctionEntry {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
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
    #[serde(default)]
    content: Option<ChatContent>,
    #[serde(default)]
    tool_call_id: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum ChatContent {
    Text(String),
    Parts(Vec<Value>),
}

/// What a request asks of a session.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ChatTurn {
    /// The last message of the user.
    pub(super) prompt: Content,
    /// What was said before, for a session that does not know it.
    pub(super) history: Vec<Message>,
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
            to_client_tool("tools.function.name", name, description.as_ref(), parameters.as_ref())
        });
        tools.collect()
    }

    /// Returns the results with which the messages end, of calls that an earlier answer gave to the client.
    pub(super) fn call_results(&self) -> Result<Vec<CallResult>, ApiError> {
        let mut results = Vec::new();
        for message in self.messages.iter().rev().take_while(|message| message.role == "tool") {
            let (session, call) = parse_call_id("tool_call_id", message.tool_call_id.as_deref().unwrap_or_default())?;
            let content = message.content.as_ref().map(|content| to_content(0, content)).transpose()?;
            results.push(CallResult {
                session,
                call,
                outcome: ClientOutcome::Ok,
                content: content.map(|content| content.text()).unwrap_or_default(),
            });
        }
        results.reverse();
        Ok(results)
    }

    /// Returns the session that the metadata names.
    pub(super) fn session(&self) -> Option<&str> {
        self.metadata.as_ref()?.get("session")?.as_str()
    }

    /// Takes the last message of the user, and what comes before it as history.
    pub(super) fn turn(&self) -> Result<ChatTurn, ApiError> {
        let (mut instructions, mut history) = (Vec::new(), Vec::new());
        for (index, message) in self.messages.iter().enumerate() {
            let content = message.content.as_ref().map(|content| to_content(index, content)).transpose()?;
            match message.role.as_str() {
                "system" | "developer" => instructions.extend(content.map(|content| content.text())),
                "user" => history.extend(content.map(|content| Message::User { content })),
                "assistant" => {
                    let content = content.map(|content| content.text()).unwrap_or_default();
                    // A reply that only called tools has no text.
                    if !content.trim().is_empty() {
                        history.push(Message::Assistant {
                            content,
                            reasoning: String::new(),
                            tool_calls: Vec::new(),
                            replay: None,
                        });
                    }
                }
                "tool" | "function" => {}
                other => {
                    let other: String = other.chars().take(40).collect();
                    return Err(ApiError::bad_request(format!("messages[{index}].role is {other:?}")));
                }
            }
        }
        let Some(Message::User { content: prompt }) = history.pop() else {
            return Err(ApiError::new(ErrorCode::EmptyMessage, "`messages` must end with a message of the user"));
        };
        let mut turn = ChatTurn { prompt, history };
        add_instructions(&mut turn.prompt, &mut turn.history, &instructions);
        Ok(turn)
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
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_at_the_end_name_their_session_and_call() {
        let messages = json!([
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "call_chat-1_a_c1-1", "type": "function"}]},
            {"role": "tool", "tool_call_id": "call_chat-1_a_c1-1", "content": "4"},
        ]);
        let parse = |messages: &Value| {
            ChatRequest::parse(json!({"model": "e", "messages": messages}).to_string().as_bytes())
                .unwrap()
                .call_results()
        };
        let results = parse(&messages).unwrap();
        let found: Vec<_> =
            results.iter().map(|one| (one.session.as_str(), one.call.as_str(), &*one.content)).collect();
        assert_eq!(found, [("chat-1_a", "c1-1", "4")]);
        assert_eq!(crate::turn::call_id(&results[0].session, &results[0].call), "call_chat-1_a_c1-1");
        assert!(parse(&json!([{"role": "tool", "tool_call_id": "x", "content": "4"}])).is_err());
    }

    fn turn(messages: &Value) -> Result<ChatTurn, ApiError> {
        ChatRequest::parse(json!({"model": "e", "messages": messages, "temperature": 1}).to_string().as_bytes())?.turn()
    }

    #[test]
    fn last_user_message_is_the_prompt_and_the_rest_is_history() {
        let found = turn(&json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "assistant", "content": null, "tool_calls": []},
            {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
        ]));
        let ChatTurn { prompt, history } = found.unwrap();
        assert_eq!(prompt.text(), "And now?");
        let Message::User { content } = &history[0] else { panic!("{history:?}") };
        assert_eq!(content.text(), "Instructions of the application:\nBe brief.\n\nMessage of the user:\nHi");
        assert_eq!(history.len(), 2);
    }

    #[test]
    fn request_that_no_agent_can_take_is_refused() {
        let rows = [
            (json!([]), "must end with a message"),
            (json!([{"role": "assistant", "content": "Hi"}]), "must end with a message"),
            (json!([{"role": "robot", "content": "Hi"}]), "robot"),
            (json!([{"role": "user", "content": [{"type": "input_audio"}]}]), "messages[0]"),
        ];
        for (messages, wanted) in rows {
            let refused = turn(&messages).unwrap_err();
            assert!(refused.message.contains(wanted), "{refused}");
        }
        assert!(ChatRequest::parse(br#"{"model": "e", "messages": [], "n": 2}"#).is_err());
    }
}
