//! The input of a run, and what of it an agent takes.

use contract::client_tool::{ClientOutcome, ClientTool};
use contract::limits::{NAME_BYTES_MAX, TOOL_CALLS_PER_REPLY_MAX};
use contract::model::{Content, ImageUrl, Part, ToolCall};
use contract::{AgentId, ErrorCode, Json};
use edge_core::api_error::ApiError;
use edge_core::params;
use edge_core::turn::{ClientTurn, GivenResult, HistoryBuilder, NewTurn, client_tool, parse_call_id, result_text};
use serde::Deserialize;

use super::interrupt::ResumeEntry;

/// Beginning of the ids of messages that hold results of the fleet. Clients bring them back with the others.
pub(super) const RESULT_PREFIX: &str = "result_";

/// The input of a run. What an agent decides itself, such as `forwardedProps`, is accepted and left out.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunInput {
    pub(super) thread_id: String,
    pub(super) run_id: String,
    /// Absent in clients before 1.0.
    pub(super) protocol_version: Option<String>,
    pub(super) parent_run_id: Option<String>,
    pub(super) state: Option<Json>,
    /// Kept as they came, since a snapshot of the messages repeats them.
    pub(super) messages: Vec<Json>,
    tools: Option<Vec<ToolEntry>>,
    context: Option<Vec<ContextEntry>>,
    resume: Option<Vec<ResumeEntry>>,
}

#[derive(Debug, Clone, Deserialize)]
struct ToolEntry {
    name: String,
    description: Option<String>,
    parameters: Option<Json>,
}

#[derive(Debug, Clone, Deserialize)]
struct ContextEntry {
    description: String,
    value: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputMessage {
    id: Option<String>,
    role: String,
    /// An activity has an object, which no agent reads.
    content: Option<Json>,
    tool_calls: Option<Vec<ToolCall>>,
    tool_call_id: Option<String>,
    error: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum InputContent {
    Text(String),
    Parts(Vec<InputPart>),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputPart {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    source: Option<PartSource>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartSource {
    #[serde(rename = "type")]
    kind: String,
    value: String,
    mime_type: Option<String>,
}

impl RunInput {
    /// Parses a body within the limits of JSON from outside.
    pub(super) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let text = std::str::from_utf8(body).map_err(|_| ApiError::bad_request("the body is not UTF-8"))?;
        params::check_size("the body", text)?;
        let mut reader = serde_json::Deserializer::from_str(text);
        let input: Self = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            let path = if path == "." { String::new() } else { format!("`{path}`: ") };
            ApiError::bad_request_by_parser(format!("{path}{}", error.inner()))
        })?;
        reader.end().map_err(ApiError::bad_request_by_parser)?;
        for (field, name) in [("threadId", &input.thread_id), ("runId", &input.run_id)] {
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                return Err(ApiError::bad_request(format!("`{field}` must have 1 to {NAME_BYTES_MAX} bytes")));
            }
        }
        if input.resume().len() > TOOL_CALLS_PER_REPLY_MAX {
            let message = format!("`resume` has more than {TOOL_CALLS_PER_REPLY_MAX} entries");
            return Err(ApiError::new(ErrorCode::TooLarge, message));
        }
        Ok(input)
    }

    /// Returns the answers to interrupts.
    pub(super) fn resume(&self) -> &[ResumeEntry] {
        self.resume.as_deref().unwrap_or_default()
    }

    /// Returns the results of the client with which the messages end.
    pub(super) fn call_results(&self) -> Result<Vec<GivenResult>, ApiError> {
        let mut results = Vec::new();
        for (index, message) in self.messages.iter().enumerate().rev() {
            let message = parse_message(index, message)?;
            match message.role.as_str() {
                "tool" => {}
                "system" | "developer" | "activity" => continue,
                _ => break,
            }
            // A result of the fleet, which the client has from an earlier run.
            if message.id.as_deref().is_some_and(|id| id.starts_with(RESULT_PREFIX)) {
                continue;
            }
            if results.len() == TOOL_CALLS_PER_REPLY_MAX {
                let message = format!("more than {TOOL_CALLS_PER_REPLY_MAX} results at once");
                return Err(ApiError::new(ErrorCode::TooLarge, message));
            }
            let field = format!("messages[{index}].toolCallId");
            let (session, call) = parse_call_id(&field, message.tool_call_id.as_deref().unwrap_or_default())?;
            let (outcome, content) = message.result(index)?;
            results.push(GivenResult { session, call, outcome, content });
        }
        results.reverse();
        Ok(results)
    }

    /// Takes the last message of the user, and what comes before it as history.
    pub(super) fn turn(&self, agent: AgentId) -> Result<NewTurn, ApiError> {
        let (mut instructions, mut history) = (Vec::new(), HistoryBuilder::default());
        let messages = self.messages.iter().enumerate().map(|(index, message)| parse_message(index, message));
        let messages: Vec<InputMessage> = messages.collect::<Result<_, _>>()?;
        let last = messages.iter().rposition(|message| message.role == "user");
        for (index, message) in messages.iter().enumerate() {
            // A part that was refused once stays in the client's list, and must not stop the conversation.
            let parts = if last == Some(index) { Parts::Strict } else { Parts::Lenient };
            match message.role.as_str() {
                "system" | "developer" => instructions.push(message.content(index, parts)?.text()),
                "user" => history.push_user(message.content(index, parts)?),
                "assistant" => {
                    history.push_reply(message.content(index, parts)?.text());
                    for ToolCall { id, function, .. } in message.tool_calls.iter().flatten() {
                        history.push_call(id, &function.name, &function.arguments);
                    }
                }
                "tool" => {
                    let (outcome, content) = message.result(index)?;
                    let content = if outcome == ClientOutcome::Ok { content } else { format!("error: {content}") };
                    // A client may have dropped the reply with the call: the result says nothing without it.
                    let _ = history.push_result(message.tool_call_id.as_deref().unwrap_or_default(), content);
                }
                "activity" | "reasoning" => {}
                other => {
                    let other: String = other.chars().take(40).collect();
                    return Err(ApiError::bad_request(format!("messages[{index}].role is {other:?}")));
                }
            }
        }
        let context = self.context.iter().flatten().map(|entry| format!("{}: {}", entry.description, entry.value));
        instructions.extend(context);
        let turn = if history.ends_with_user() { history.into_turn() } else { None };
        let Some(turn) = turn else {
            let message = "`messages` must end with a message of the user, or with results of its tools";
            return Err(ApiError::new(ErrorCode::EmptyMessage, message));
        };
        let ClientTurn { prompt, history, .. } = ClientTurn { instructions, ..turn }.with_instructions();
        Ok(NewTurn { agent, prompt, history, client_tools: self.client_tools()? })
    }

    /// Returns the names of the tools that the client brings.
    pub(super) fn tool_names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().flatten().map(|tool| tool.name.as_str())
    }

    fn client_tools(&self) -> Result<Vec<ClientTool>, ApiError> {
        let entries = self.tools.iter().flatten().enumerate();
        let tools = entries.map(|(index, ToolEntry { name, description, parameters })| {
            client_tool(&format!("tools[{index}].name"), name, description.as_ref(), parameters.clone())
        });
        tools.collect()
    }
}

/// Handling of a part that no agent can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parts {
    Strict,
    /// A note takes its place.
    Lenient,
}

fn parse_message(index: usize, message: &Json) -> Result<InputMessage, ApiError> {
    serde_json::from_str(message.get())
        .map_err(|error| ApiError::bad_request_by_parser(format!("messages[{index}]: {error}")))
}

impl InputMessage {
    /// Returns the result of a call.
    fn result(&self, index: usize) -> Result<(ClientOutcome, String), ApiError> {
        let content = result_text(&self.content(index, Parts::Lenient)?);
        Ok(match &self.error {
            Some(error) if content.is_empty() => (ClientOutcome::Error, error.clone()),
            Some(_) => (ClientOutcome::Error, content),
            None => (ClientOutcome::Ok, content),
        })
    }

    fn content(&self, index: usize, parts: Parts) -> Result<Content, ApiError> {
        let content = match &self.content {
            None => return Ok(Content::Text(String::new())),
            Some(content) if content.get() == "null" => return Ok(Content::Text(String::new())),
            Some(content) => content,
        };
        match serde_json::from_str(content.get()) {
            Ok(InputContent::Text(text)) => Ok(Content::Text(text)),
            Ok(InputContent::Parts(list)) => {
                let list: Result<_, _> = list.into_iter().map(|part| part.into_part(index, parts)).collect();
                list.map(Content::Parts)
            }
            Err(_) => {
                let message = format!("messages[{index}].content must be a text, or a list of parts with a `type`");
                Err(ApiError::bad_request(message))
            }
        }
    }
}

impl InputPart {
    fn into_part(self, index: usize, parts: Parts) -> Result<Part, ApiError> {
        let Self { kind, text, source } = self;
        match (kind.as_str(), text, source) {
            ("text", Some(text), _) => Ok(Part::Text { text }),
            ("image", _, Some(PartSource { kind, value, mime_type })) if kind == "url" || kind == "data" => {
                let mime_type = mime_type.unwrap_or_else(|| "image/png".to_owned());
                let url = if kind == "url" { value } else { format!("data:{mime_type};base64,{value}") };
                Ok(Part::ImageUrl { image_url: ImageUrl { url } })
            }
            _ if parts == Parts::Lenient => Ok(Part::Text { text: "[a part that the agent cannot read]".to_owned() }),
            _ => {
                let kind: String = kind.chars().take(40).collect();
                let message = format!(
                    "messages[{index}].content has a part of type {kind:?}: agents take `text`, and `image` by url \
                     or data"
                );
                Err(ApiError::bad_request(message))
            }
        }
    }
}

#[cfg(test)]
#[path = "input_tests.rs"]
mod tests;
