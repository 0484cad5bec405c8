//! Bodies of requests, parsed once. What no agent can do is refused.

use std::collections::BTreeMap;

use contract::client_tool::{ClientOutcome, ClientTool};
use contract::command::AnswerDecision;
use contract::model::{Content, ImageUrl, Part};
use contract::{CallId, ErrorCode};
use edge_core::api_error::ApiError;
use edge_core::params;
use edge_core::turn::result_text;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::function::{ToolEntry, to_client_tools};

/// Events of one request.
const EVENTS_MAX: usize = 64;
/// Pairs of metadata, and bytes of all of them: each event of a session repeats them.
const METADATA_MAX: usize = 16;
const METADATA_BYTES_MAX: usize = 16 << 10;

/// The body of `POST /agents/sessions`.
#[derive(Debug, Deserialize)]
pub(super) struct CreateRequest {
    environment: Option<Environment>,
    agent_id: Option<String>,
    agent: Option<AgentParam>,
    input: Option<Input>,
    metadata: Option<BTreeMap<String, String>>,
    pub(super) stream: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Environment {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Deserialize)]
struct AgentParam {
    model: Option<String>,
    instructions: Option<String>,
    tools: Option<Vec<ToolEntry>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Messages(Vec<InputMessage>),
}

#[derive(Debug, Deserialize)]
struct InputMessage {
    role: String,
    content: InputContent,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum InputContent {
    Text(String),
    Parts(Vec<InputPart>),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum InputPart {
    InputText { text: String },
    InputImage { image_url: String },
}

/// The body of `POST /agents/sessions/{session}/events`.
#[derive(Debug, Deserialize)]
struct EventsRequest {
    events: Vec<InputEvent>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type")]
enum InputEvent {
    #[serde(rename = "agent.session.input.message")]
    Message { input: Vec<InputMessage> },
    #[serde(rename = "agent.session.input.cancel")]
    Cancel {},
    #[serde(rename = "agent.session.input.tool_result")]
    ToolResult { call_id: String, success: bool, output: Option<InputContent>, error: Option<String> },
    #[serde(rename = "agent.session.input.mcp_approval_request_result")]
    Approval { request_id: String, response: ApprovalResponse },
}

#[derive(Debug, Deserialize)]
struct ApprovalResponse {
    decision: Decision,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Decision {
    Approve,
    Deny,
    Cancel,
}

/// Input of a client to a session.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SessionInput {
    /// A message, which begins a turn or answers the question of one.
    Message(Content),
    /// The turn that runs is called off.
    Cancel,
    /// The result of a call of the client's tools.
    ToolResult { call: CallId, outcome: ClientOutcome, content: String },
    /// The answer to a gate.
    Approval { gate: CallId, decision: AnswerDecision },
}

impl CreateRequest {
    /// Parses a body, and refuses every environment of its own.
    pub(super) fn parse(body: &[u8]) -> Result<Self, ApiError> {
        let request: Self = serde_json::from_slice(body).map_err(ApiError::bad_request_by_parser)?;
        match &request.environment {
            Some(environment) if environment.kind == "none" => Ok(request),
            Some(_) | None => Err(ApiError::bad_request(
                "`environment` must be {\"type\": \"none\"}: an agent has the tools of its fleet, and needs no other place",
            )),
        }
    }

    /// Returns the name of the agent.
    pub(super) fn agent(&self) -> Result<&str, ApiError> {
        let model = self.agent.as_ref().and_then(|agent| agent.model.as_deref());
        match (&self.agent_id, model) {
            (Some(agent), Some(model)) if agent != model => Err(ApiError::bad_request(
                "give either `agent_id` or `agent.model`: both name an agent, whose model cannot be changed here",
            )),
            (Some(agent), _) => Ok(agent),
            (None, Some(model)) => Ok(model),
            (None, None) => Err(ApiError::bad_request("`agent_id` is missing: GET /agents lists the agents")),
        }
    }

    /// Returns the instructions of the application.
    pub(super) fn instructions(&self) -> Option<String> {
        let instructions = self.agent.as_ref()?.instructions.clone()?;
        (!instructions.trim().is_empty()).then_some(instructions)
    }

    /// Takes the metadata, which are not stored.
    pub(super) fn take_metadata(&mut self) -> Result<Map<String, Value>, ApiError> {
        let metadata = self.metadata.take().unwrap_or_default();
        let bytes: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        if metadata.len() > METADATA_MAX || bytes > METADATA_BYTES_MAX {
            let message = format!("`metadata` may have {METADATA_MAX} pairs, and {METADATA_BYTES_MAX} bytes");
            return Err(ApiError::bad_request(message));
        }
        Ok(metadata.into_iter().map(|(key, value)| (key, Value::String(value))).collect())
    }

    /// Returns the functions that the client performs.
    pub(super) fn client_tools(&self) -> Result<Vec<ClientTool>, ApiError> {
        let tools = self.agent.iter().flat_map(|agent| agent.tools.iter().flatten());
        to_client_tools("agent.tools", "functions only", tools)
    }

    /// Takes the first message.
    pub(super) fn take_prompt(&mut self) -> Result<Content, ApiError> {
        match self.input.take() {
            None => Err(ApiError::new(ErrorCode::EmptyMessage, "`input` is missing: a session begins with a message")),
            Some(Input::Text(text)) => Ok(Content::Text(text)),
            Some(Input::Messages(messages)) => join(messages),
        }
    }
}

/// Parses the events of a request.
pub(super) fn parse_events(body: &[u8]) -> Result<Vec<SessionInput>, ApiError> {
    let EventsRequest { events } = serde_json::from_slice(body).map_err(ApiError::bad_request_by_parser)?;
    if events.is_empty() || events.len() > EVENTS_MAX {
        return Err(ApiError::bad_request(format!("`events` must have from 1 to {EVENTS_MAX} events")));
    }
    let inputs: Vec<SessionInput> = events.into_iter().map(InputEvent::into_input).collect::<Result<_, _>>()?;
    let messages = inputs.iter().filter(|input| matches!(input, SessionInput::Message(_))).count();
    let cancels = inputs.iter().filter(|input| **input == SessionInput::Cancel).count();
    if messages > 1 || cancels > 1 {
        return Err(ApiError::bad_request("send each message and each cancel in a request of its own"));
    }
    Ok(inputs)
}

impl InputEvent {
    fn into_input(self) -> Result<SessionInput, ApiError> {
        Ok(match self {
            Self::Message { input } => SessionInput::Message(join(input)?),
            Self::Cancel {} => SessionInput::Cancel,
            Self::ToolResult { call_id, success, output, error } => {
                let call = params::parse("call_id", &call_id)?;
                let output = output.map(|output| result_text(&to_content(output))).unwrap_or_default();
                let (outcome, content) =
                    if success { (ClientOutcome::Ok, output) } else { (ClientOutcome::Error, error.unwrap_or(output)) };
                SessionInput::ToolResult { call, outcome, content }
            }
            Self::Approval { request_id, response } => {
                let decision = match response.decision {
                    Decision::Approve => AnswerDecision::Approve,
                    // The protocol dismisses a request with `cancel`, and goes on with the turn.
                    Decision::Deny | Decision::Cancel => AnswerDecision::Deny,
                };
                SessionInput::Approval { gate: params::parse("request_id", &request_id)?, decision }
            }
        })
    }
}

/// Makes one message of several: a turn begins with one.
fn join(messages: Vec<InputMessage>) -> Result<Content, ApiError> {
    if let Some(other) = messages.iter().find(|message| message.role != "user") {
        let role: String = other.role.chars().take(40).collect();
        return Err(ApiError::bad_request(format!("a message of the input has the role {role:?}: it must be `user`")));
    }
    let mut contents: Vec<Content> = messages.into_iter().map(|message| to_content(message.content)).collect();
    if contents.len() == 1
        && let Some(content) = contents.pop()
    {
        return Ok(content);
    }
    let parts: Vec<Part> = contents
        .into_iter()
        .flat_map(|content| match content {
            Content::Text(text) => vec![Part::Text { text }],
            Content::Parts(parts) => parts,
        })
        .collect();
    if parts.is_empty() {
        return Err(ApiError::new(ErrorCode::EmptyMessage, "`input` has no message"));
    }
    Ok(Content::Parts(parts))
}

fn to_content(content: InputContent) -> Content {
    let part = |part| match part {
        InputPart::InputText { text } => Part::Text { text },
        InputPart::InputImage { image_url } => Part::ImageUrl { image_url: ImageUrl { url: image_url } },
    };
    match content {
        InputContent::Text(text) => Content::Text(text),
        // Text alone stays text.
        InputContent::Parts(mut parts) if parts.len() == 1 => match parts.pop() {
            Some(InputPart::InputText { text }) => Content::Text(text),
            Some(other) => Content::Parts(vec![part(other)]),
            None => Content::Parts(Vec::new()),
        },
        InputContent::Parts(parts) => Content::Parts(parts.into_iter().map(part).collect()),
    }
}
