//! A request for a response, and what of it an agent takes.

use contract::client_tool::{ClientOutcome, ClientTool};
use contract::{CallId, SessionId};
use edge_core::api_error::ApiError;
use edge_core::turn::{GivenResult, parse_call_id};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::ids::{self, ResponseId};
use super::input::{self, Input};
use crate::function::{ToolEntry, to_client_tools};

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
    pub(super) model: Option<String>,
    input: Option<Input>,
    instructions: Option<Value>,
    previous_response_id: Option<String>,
    conversation: Option<ConversationParam>,
    pub(super) stream: Option<bool>,
    background: Option<bool>,
    store: Option<bool>,
    tools: Option<Vec<ToolEntry>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum ConversationParam {
    Id(String),
    Object { id: String },
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
    reason: Option<String>,
}

/// Conversation or response that a response continues.
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
    pub(super) results: Vec<GivenResult>,
    pub(super) approvals: Vec<Approval>,
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
        to_client_tools("tools", "functions of the client only", self.tools.iter().flatten())
    }

    /// Returns the input; nothing where the request has none.
    pub(super) fn input(&self) -> Input {
        self.input.clone().unwrap_or_else(|| Input::Items(Vec::new()))
    }

    /// Returns the answers with which the input ends. Answers before the last message are history, and so are results of
    /// calls that no session here has made.
    pub(super) fn answers(&self) -> Result<ClientAnswers, ApiError> {
        let mut answers = ClientAnswers::default();
        for (kind, item) in self.input.as_ref().map(input::items_of).transpose()?.unwrap_or_default().into_iter().rev()
        {
            match kind {
                "function_call_output" => {
                    let CallOutput { call_id, output } = input::read(item)?;
                    let Ok((session, call)) = parse_call_id("call_id", &call_id) else { break };
                    let content = input::output_text(&output);
                    answers.results.push(GivenResult { session, call, outcome: ClientOutcome::Ok, content });
                }
                "mcp_approval_response" => {
                    let ApprovalResponse { approval_request_id, approve, reason } = input::read(item)?;
                    let (session, gate) = ids::parse_approval(&approval_request_id)?;
                    answers.approvals.push(Approval { session, gate, is_approved: approve, note: reason });
                }
                // Clients send these items back before their answers.
                "function_call"
                | "mcp_call"
                | "mcp_approval_request"
                | "mcp_list_tools"
                | "reasoning"
                | input::REFERENCE => {}
                _ => break,
            }
        }
        answers.results.reverse();
        answers.approvals.reverse();
        Ok(answers)
    }

    /// Returns the field `instructions`.
    pub(super) fn instructions(&self) -> Option<&str> {
        self.instructions.as_ref().and_then(Value::as_str)
    }
}

impl ClientAnswers {
    pub(super) fn is_empty(&self) -> bool {
        self.results.is_empty() && self.approvals.is_empty()
    }
}

/// Returns the fields of a response of which no request is known any more.
pub(super) fn default_fields() -> Map<String, Value> {
    serde_json::from_str(ECHOED).unwrap_or_default()
}
