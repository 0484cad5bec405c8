//! Gates as interrupts. The id of an interrupt names everything that an answer needs, so any edge can take the answer.

use contract::command::{Answer, AnswerDecision};
use contract::commit::OpenGate;
use contract::event::GateKind;
use contract::tool::{ASK_USER, GateQuestion};
use contract::{CallId, Json, SessionId, Timestamp, ToolName};
use edge_core::api_error::ApiError;
use edge_core::params;
use edge_core::turn::call_id;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Interrupt of a run, which a client shows to a person.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Interrupt {
    id: String,
    reason: &'static str,
    message: String,
    /// The call that waits; absent where the gate is about the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    response_schema: Value,
    expires_at: Timestamp,
    metadata: Value,
}

/// An answer to an interrupt, as clients send it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResumeEntry {
    interrupt_id: String,
    status: ResumeStatus,
    payload: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ResumeStatus {
    Resolved,
    Cancelled,
}

/// The payload of a resolved interrupt, beside the short forms of a text and a truth value.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    approved: Option<bool>,
    edited_args: Option<Value>,
    note: Option<String>,
    answer: Option<String>,
}

impl Interrupt {
    /// Describes a gate that is open.
    pub(super) fn of_gate(session: &SessionId, open: &OpenGate) -> Self {
        let OpenGate { gate, kind, tool, arguments, shortened: _, arguments_sha256, expires } = open;
        let approval = |what: Value| {
            let mut properties = json!({"approved": {"type": "boolean"}, "note": {"type": "string"}});
            if !what.is_null() {
                properties["editedArgs"] = what;
            }
            json!({"type": "object", "properties": properties, "required": ["approved"]})
        };
        let call = Some(call_id(session, gate));
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
        let (word, reason, message, tool_call_id, response_schema, metadata) = match kind {
            GateKind::Approval => {
                let tool = tool.as_ref().map_or("a tool", ToolName::as_str);
                let message = format!("The agent wants to call {tool}. May it?");
                let edited = json!({"type": "object", "description": "The call runs with these arguments instead."});
                let metadata = json!({"kind": "approval", "tool": tool, "arguments": arguments});
                ("approval", "tool_call", message, call, approval(edited), metadata)
            }
            GateKind::Question => {
                let asked: GateQuestion = serde_json::from_value(arguments).unwrap_or_default();
                let schema = json!({
                    "type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"],
                });
                let metadata = json!({"kind": "question", "tool": ASK_USER, "choices": asked.choices});
                ("question", "input_required", asked.question, call, schema, metadata)
            }
            GateKind::Limit(limit) => {
                let message = format!("The turn is at its limit {}. May it use as much again?", limit.as_str());
                let metadata = json!({"kind": "limit", "limit": limit.as_str()});
                ("limit", "confirmation", message, None, approval(Value::Null), metadata)
            }
            GateKind::Error(failure) => {
                let metadata = json!({"kind": "error", "failure": failure});
                let message = "The model call has failed. Shall it be tried again?".to_owned();
                ("error", "confirmation", message, None, approval(Value::Null), metadata)
            }
        };
        let id = format!("{word}_{session}_{gate}_{arguments_sha256}");
        Self { id, reason, message, tool_call_id, response_schema, expires_at: *expires, metadata }
    }
}

impl ResumeEntry {
    /// Reads the session of the interrupt, and the answer to its gate.
    pub(super) fn to_answer(&self) -> Result<(SessionId, Answer), ApiError> {
        let id = &self.interrupt_id;
        let parts = id.split_once('_').and_then(|(kind, rest)| {
            let (rest, sha256) = rest.rsplit_once('_')?;
            let (session, gate) = rest.rsplit_once('_')?;
            Some((kind, session, gate, sha256))
        });
        let unknown = || {
            let id: String = id.chars().take(160).collect();
            ApiError::bad_request(format!("resume: {id:?} is the id of no interrupt"))
        };
        let (kind, session, gate, sha256) = parts.ok_or_else(unknown)?;
        let session = params::parse_session_id(session).map_err(|_| unknown())?;
        let gate: CallId = gate.parse().map_err(|_| unknown())?;
        let answer = |decision| Answer::new(gate, sha256.to_owned(), decision);
        if self.status == ResumeStatus::Cancelled {
            return Ok((session, answer(AnswerDecision::Deny)));
        }
        let payload = self.payload()?;
        let missing = |field: &str| ApiError::bad_request(format!("resume: the payload of {id} has no `{field}`"));
        let answer = match kind {
            "question" => {
                let content = Some(payload.answer.ok_or_else(|| missing("answer"))?);
                Answer { content, note: payload.note, ..answer(AnswerDecision::Answer) }
            }
            "approval" | "limit" | "error" => {
                let approved = payload.approved.ok_or_else(|| missing("approved"))?;
                let edited = payload.edited_args.filter(|_| approved);
                if edited.as_ref().is_some_and(|edited| kind != "approval" || !edited.is_object()) {
                    return Err(ApiError::bad_request(format!("resume: `editedArgs` of {id} are not allowed here")));
                }
                let decision = if approved { AnswerDecision::Approve } else { AnswerDecision::Deny };
                Answer { arguments: edited.as_ref().map(Json::of), note: payload.note, ..answer(decision) }
            }
            _ => return Err(unknown()),
        };
        Ok((session, answer))
    }

    fn payload(&self) -> Result<Payload, ApiError> {
        match &self.payload {
            None | Some(Value::Null) => Ok(Payload::default()),
            Some(Value::Bool(approved)) => Ok(Payload { approved: Some(*approved), ..Payload::default() }),
            Some(Value::String(answer)) => Ok(Payload { answer: Some(answer.clone()), ..Payload::default() }),
            Some(payload @ (Value::Object(_) | Value::Array(_) | Value::Number(_))) => {
                serde_json::from_value(payload.clone()).map_err(ApiError::bad_request_by_parser)
            }
        }
    }
}
