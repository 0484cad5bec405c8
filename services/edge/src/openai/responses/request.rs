//! A request for a response, and what of it an agent takes.

use contract::client_tool::{ClientOutcome, ClientTool};
use contract::model::{Content, ImageUrl, Message, Part};
use contract::{CallId, ErrorCode, SessionId};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::ids::{self, ResponseId};
use crate::api_error::ApiError;
use crate::openai::function::to_client_tool;
use crate::turn::{CallResult, add_instructions, parse_call_id};

/// Fields of a request that stand in its response as they were sent, with what stands there otherwise.
const ECHOED: &str = r#"{
    "instructions": null, "max_output_tokens": null, "max_tool_calls": null, "metadata": {}, "parallel_tool_calls": true,
    "previous_response_id": null, "prompt_cache_key": null, "reasoning": null, "safety_identifier": null,
    "service_tier": "default", "store": true, "background": false, "temperature": 1, "text": {"format": {"type": "text"}},
    "tool_choice": "auto", "tools": [], "top_p": 1, "top_logprobs": 0, "presence_penalty": 0, "frequency_penalty": 0,
    "truncation": "disabled", "user": null
}"#;

/// A request. Fields that an agent decides itself, such as `temperature`, are accepted and echoed.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ResponseRequest {
    #[serde(default)]
    pub(super) model: Option<String>,
    #[serde(default)]
    input: Option<Input>,
    #[serde(default)]
    instructions: Option<Value>,
    #[serde(default)]
    previous_response_id: Option<String>,
    #[serde(default)]
    conversation: Option<ConversationParam>,
    #[serde(default)]
    pub(super) stream: Option<bool>,
    #[serde(default)]
    background: Option<bool>,
    #[serde(default)]
    store: Option<bool>,
    #[serde(default)]
    tools: Option<Vec<ToolEntry>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Input {
    Text(String),
    Items(Vec<Value>),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum ConversationParam {
    Id(String),
    Object { id: String },
}

#[derive(Debug, Clone, Deserialize)]
struct ToolEntry {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<Value>,
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

#[derive(Debug, Clone, Deserialize)]
struct CallOutput {
    call_id: String,
    output: Value,
}

#[derive(Debug, Clone, Deserialize)]
struct ApprovalResponse {
    approval_request_id: String,
    approve: bool,
    #[serde(default)]
    reason: Option<String>,
}

/// What a response continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Continuation {
    Nothing,
    Conversation(SessionId),
    Previous(ResponseId),
}

/// The answer of a person to a request for an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Approval {
    pub(super) session: SessionId,
    pub(super) gate: CallId,
    pub(super) is_approved: bool,
    pub(super) note: Option<String>,
}

/// Answers of the client with which the input ends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ClientAnswers {
    pub(super) results: Vec<CallResult>,
    pub(super) approvals: Vec<Approval>,
}

/// What the input says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Messages {
    /// The last message of the user.
    pub(super) prompt: Content,
    /// What was said before, for a session that does not know it.
    pub(super) history: Vec<Message>,
}

impl ResponseRequest {
    /// Parses a body, and refuses what no agent can do.
    pub(super) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let request: Self = serde_json::from_slice(body).map_err(ApiError::bad_request_by_parser)?;
        if request.conversation.is_some() && request.previous_response_id.is_some() {
            return Err(ApiError::bad_request("give either `conversation` or `previous_response_id`, not both"));
        }
        if request.is_background() && request.store == Some(false) {
            return Err(ApiError::bad_request("`background` needs `store`: the response is read later"));
        }
        Ok(request)
    }

    pub(super) fn is_background(&self) -> bool {
        self.background == Some(true)
    }

    /// Returns the fields that the response to a body has as the body has them.
    pub(super) fn echoed(body: &[u8]) -> Map<String, Value> {
        let sent: Map<String, Value> = serde_json::from_slice(body).unwrap_or_default();
        let mut fields = default_fields();
        for (name, value) in &mut fields {
            if let Some(sent) = sent.get(name).filter(|sent| !sent.is_null()) {
                value.clone_from(sent);
            }
        }
        fields
    }

    pub(super) fn continuation(&self) -> Result<Continuation, ApiError> {
        let conversation = self.conversation.as_ref().map(|conversation| match conversation {
            ConversationParam::Id(id) | ConversationParam::Object { id } => id,
        });
        match (conversation, &self.previous_response_id) {
            (Some(id), _) => Ok(Continuation::Conversation(ids::session_of_conversation(id)?)),
            (None, Some(id)) => Ok(Continuation::Previous(ResponseId::parse(id)?)),
            (None, None) => Ok(Continuation::Nothing),
        }
    }

    /// Returns the tools that the client brings.
    pub(super) fn client_tools(&self) -> Result<Vec<ClientTool>, ApiError> {
        let tools = self.tools.iter().flatten().enumerate().map(|(index, entry)| {
            if entry.kind != "function" {
                let kind: String = entry.kind.chars().take(40).collect();
                let message = format!("tools[{index}] is a {kind:?}: an agent takes functions of the client only");
                return Err(ApiError::bad_request(message));
            }
            let ToolEntry { name, description, parameters, .. } = entry;
            to_client_tool("tools.name", name, description.as_ref(), parameters.as_ref())
        });
        tools.collect()
    }

    /// Returns the answers with which the input ends. Answers before the last message are history.
    pub(super) fn answers(&self) -> Result<ClientAnswers, ApiError> {
        let mut answers = ClientAnswers::default();
        for (kind, item) in self.input.as_ref().map(items_of).transpose()?.unwrap_or_default().into_iter().rev() {
            match kind {
                "function_call_output" => {
                    let CallOutput { call_id, output } = read(item)?;
                    let (session, call) = parse_call_id("call_id", &call_id)?;
                    let content = output_text(output)?;
                    answers.results.push(CallResult { session, call, outcome: ClientOutcome::Ok, content });
                }
                "mcp_approval_response" => {
                    let ApprovalResponse { approval_request_id, approve, reason } = read(item)?;
                    let (session, gate) = ids::parse_approval(&approval_request_id)?;
                    answers.approvals.push(Approval { session, gate, is_approved: approve, note: reason });
                }
                // Clients send these items back before their answers.
                "function_call"
                | "mcp_call"
                | "mcp_approval_request"
                | "mcp_list_tools"
                | "reasoning"
                | "item_reference" => {}
                _ => break,
            }
        }
        answers.results.reverse();
        answers.approvals.reverse();
        Ok(answers)
    }

    /// Takes the last message of the user, and what comes before it as history.
    pub(super) fn messages(&self) -> Result<Messages, ApiError> {
        let mut history = self.input.as_ref().map(messages_of).transpose()?.unwrap_or_default();
        let Some(Message::User { content: prompt }) = history.pop() else {
            return Err(ApiError::new(ErrorCode::EmptyMessage, "`input` must end with a message of the user"));
        };
        Ok(Messages { prompt, history })
    }

    /// Returns the instructions of the application: the field, and messages of the roles `system` and `developer`.
    pub(super) fn instructions(&self, messages: &mut Messages) -> Option<String> {
        let mut all: Vec<String> =
            self.instructions.as_ref().and_then(Value::as_str).map(str::to_owned).into_iter().collect();
        messages.history.retain(|message| {
            let Message::System { content } = message else { return true };
            all.push(content.clone());
            false
        });
        let all = all.join("\n\n");
        (!all.trim().is_empty()).then_some(all)
    }
}

impl ClientAnswers {
    pub(super) fn is_empty(&self) -> bool {
        self.results.is_empty() && self.approvals.is_empty()
    }
}

impl Messages {
    /// Puts instructions before the first message of the user. The prompt of the agent stays as it is.
    pub(super) fn add_instructions(&mut self, instructions: &str) {
        add_instructions(&mut self.prompt, &mut self.history, &[instructions.to_owned()]);
    }
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
fn items_of(input: &Input) -> Result<Vec<(&str, &Value)>, ApiError> {
    let Input::Items(items) = input else { return Ok(Vec::new()) };
    let kinds = items.iter().enumerate().map(|(index, item)| match item.get("type").and_then(Value::as_str) {
        Some(kind) => Ok((kind, item)),
        None if item.get("role").is_some() => Ok(("message", item)),
        None => Err(ApiError::bad_request(format!("input[{index}] has neither `type` nor `role`"))),
    });
    kinds.collect()
}

/// Returns the messages of an input. Calls and results of earlier answers are left out: a session knows its own.
pub(super) fn messages_of(input: &Input) -> Result<Vec<Message>, ApiError> {
    if let Input::Text(text) = input {
        return Ok(vec![Message::User { content: Content::Text(text.clone()) }]);
    }
    let mut messages = Vec::new();
    for (_, item) in items_of(input)?.into_iter().filter(|(kind, _)| *kind == "message") {
        let MessageItem { role, content } = read(item)?;
        let content = content.into_content();
        messages.push(match role.as_str() {
            "user" => Message::User { content },
            "assistant" => Message::Assistant {
                content: content.text(),
                reasoning: String::new(),
                tool_calls: Vec::new(),
                replay: None,
            },
            "system" | "developer" => Message::System { content: content.text() },
            other => {
                let other: String = other.chars().take(40).collect();
                return Err(ApiError::bad_request(format!("a message of the input has the role {other:?}")));
            }
        });
    }
    Ok(messages)
}

/// Returns the fields of a response of which no request is known any more.
pub(super) fn default_fields() -> Map<String, Value> {
    serde_json::from_str(ECHOED).unwrap_or_default()
}

/// The output of a call is text, or parts of text.
fn output_text(output: Value) -> Result<String, ApiError> {
    if let Value::String(text) = output {
        return Ok(text);
    }
    let parts: Vec<ContentPart> = read(&output)?;
    Ok(MessageContent::Parts(parts).into_content().text())
}

fn read<T: serde::de::DeserializeOwned>(item: &Value) -> Result<T, ApiError> {
    T::deserialize(item).map_err(|error| {
        let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
        let kind: String = kind.chars().take(40).collect();
        ApiError::bad_request_by_parser(format!("an item {kind:?} of the input cannot be taken: {error}"))
    })
}
