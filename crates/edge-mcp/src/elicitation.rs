//! Form for a gate of a session, which the client shows to a person, and the person's answer.

use contract::command::{Answer, AnswerDecision};
use contract::commit::OpenGate;
use contract::event::GateKind;
use contract::tool::{GateQuestion, sha256_hex};
use contract::{CallId, SessionId};
use edge_core::access::ApiCaller;
use edge_core::api_error::ApiError;
use rmcp::model::{ClientCapabilities, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, RequestId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::broadcast;

/// Bytes of arguments that a form shows. A person must see all that they approve, so longer ones are answered elsewhere.
const FORM_BYTES_MAX: usize = 16 << 10;
/// Begins the ids of the requests by which older clients are asked.
const REQUEST_PREFIX: &str = "ailoop-gate.";
/// Dismissed forms that a waiting call may be behind with.
const DISMISSALS_MAX: usize = 64;

/// Forms that a person closed without an answer, for the calls of this replica that wait for it.
#[derive(Debug, Clone)]
pub(super) struct Dismissals(broadcast::Sender<(SessionId, CallId)>);

impl Default for Dismissals {
    fn default() -> Self {
        Self(broadcast::Sender::new(DISMISSALS_MAX))
    }
}

impl Dismissals {
    pub(super) fn publish(&self, session: SessionId, gate: CallId) {
        // Nobody may wait on this replica.
        let _ = self.0.send((session, gate));
    }

    pub(super) fn subscribe(&self) -> broadcast::Receiver<(SessionId, CallId)> {
        self.0.subscribe()
    }
}

/// Whether a client shows forms. A client that names no mode shows them.
pub(super) fn can_fill_forms(capabilities: &ClientCapabilities) -> bool {
    capabilities.elicitation.as_ref().is_some_and(|modes| modes.form.is_some() || modes.url.is_none())
}

/// Returns the form for a gate; `None` if a form cannot show all of it.
pub(super) fn to_form(agent: &str, gate: &OpenGate) -> Option<ElicitRequest> {
    if gate.shortened || gate.arguments.len() > FORM_BYTES_MAX {
        return None;
    }
    let (message, schema) = match &gate.kind {
        GateKind::Question => question_form(agent, &gate.arguments),
        GateKind::Approval | GateKind::Limit(_) | GateKind::Error(_) => {
            (format!("The agent {agent} asks: {}", describe(gate)), approval_schema())
        }
    };
    let requested_schema = serde_json::from_value(schema).ok()?;
    Some(ElicitRequest::new(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema }))
}

/// Says in a sentence what a gate is about.
pub(super) fn describe(gate: &OpenGate) -> String {
    let tool = gate.tool.as_ref().map(ToString::to_string).unwrap_or_default();
    match &gate.kind {
        GateKind::Question => GateQuestion::parse(&gate.arguments).question,
        GateKind::Approval => format!("may the tool `{tool}` be called with the arguments {}?", gate.arguments),
        GateKind::Limit(limit) => {
            let limit = json!(limit);
            format!("the turn is at its limit {}: may it use as much again?", limit.as_str().unwrap_or_default())
        }
        GateKind::Error(_) => "a model call has failed for good: shall it be tried again?".to_owned(),
    }
}

fn question_form(agent: &str, arguments: &str) -> (String, Value) {
    let GateQuestion { question, choices } = GateQuestion::parse(arguments);
    let choices = if choices.is_empty() { String::new() } else { format!("\nFor example: {}", choices.join(" | ")) };
    let answer = json!({"type": "string", "title": "Answer", "minLength": 1});
    let schema = json!({"type": "object", "properties": {"answer": answer}, "required": ["answer"]});
    (format!("The agent {agent} asks: {question}{choices}"), schema)
}

fn approval_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "decision": {"type": "string", "title": "Decision", "enum": ["approve", "deny"]},
            "note": {"type": "string", "title": "Note", "description": "Reason of a denial, for the agent."},
        },
        "required": ["decision"],
    })
}

/// Reads the answer from a form; `None` if the person closed it, or filled it in wrongly.
pub(super) fn to_answer(gate: &OpenGate, result: &ElicitResult) -> Option<Answer> {
    let field = |name: &str| result.content.as_ref()?.get(name)?.as_str().map(str::to_owned);
    let answer = |decision| Answer::new(gate.gate.clone(), gate.arguments_sha256.clone(), decision);
    if result.action == ElicitationAction::Decline {
        return Some(answer(AnswerDecision::Deny));
    }
    if result.action != ElicitationAction::Accept {
        return None;
    }
    if gate.kind == GateKind::Question {
        let content = field("answer").filter(|text| !text.is_empty())?;
        return Some(Answer { content: Some(content), ..answer(AnswerDecision::Answer) });
    }
    let note = field("note").filter(|note| !note.is_empty());
    match field("decision")?.as_str() {
        "approve" => Some(answer(AnswerDecision::Approve)),
        "deny" => Some(Answer { note, ..answer(AnswerDecision::Deny) }),
        _ => None,
    }
}

/// Returns the id of the request by which an older client is asked. It says all that is needed to take the answer, so
/// that every replica can.
pub(super) fn to_request_id(session: &SessionId, gate: &CallId) -> RequestId {
    RequestId::String(format!("{REQUEST_PREFIX}{session}.{gate}").into())
}

/// Reads the id of the request that a client answered.
pub(super) fn parse_request_id(id: &RequestId) -> Option<(SessionId, CallId)> {
    let RequestId::String(text) = id else { return None };
    let (session, gate) = text.strip_prefix(REQUEST_PREFIX)?.split_once('.')?;
    Some((SessionId::new(session).ok()?, CallId::new(gate).ok()?))
}

/// State from which a call continues when its forms are filled in. The client stores it and may change it, so nothing
/// in it is trusted: the session and the gates are checked as if they were arguments of `answer_gate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallState {
    pub(super) session_id: SessionId,
    /// The last event before those that follow from the answers.
    pub(super) seq: u64,
    /// Digest of the caller that was asked.
    by: String,
}

impl CallState {
    pub(super) fn new(caller: &ApiCaller, session_id: SessionId, seq: u64) -> Self {
        Self { session_id, seq, by: digest_of(caller) }
    }

    pub(super) fn to_text(&self) -> String {
        json!(self).to_string()
    }

    /// Reads what a client sent back, and refuses the state of another caller.
    pub(super) fn parse(caller: &ApiCaller, text: &str) -> Result<Self, ApiError> {
        let state: Self = serde_json::from_str(text).map_err(|error| {
            let message =
                format!("`requestState` is not as it was sent ({error}): send it unchanged, or begin the call again");
            ApiError::bad_request_by_parser(message)
        })?;
        if state.by != digest_of(caller) {
            return Err(ApiError::bad_request("`requestState` is of another caller: begin the call again"));
        }
        Ok(state)
    }
}

fn digest_of(caller: &ApiCaller) -> String {
    sha256_hex(caller.name().as_bytes())[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use contract::Timestamp;
    use contract::event::StopReason;

    use super::*;

    fn gate(kind: GateKind, arguments: &str) -> OpenGate {
        OpenGate {
            gate: CallId::new("c1-1-1").unwrap(),
            kind,
            tool: contract::ToolName::new("send_money").ok(),
            arguments: arguments.to_owned(),
            shortened: false,
            arguments_sha256: "ab".repeat(32),
            expires: Timestamp::default(),
        }
    }

    #[test]
    fn form_shows_all_of_a_gate_or_is_not_made() {
        let rows = [
            (
                gate(GateKind::Approval, "{\"to\":\"Eve\"}"),
                "`send_money` be called with the arguments {\"to\":\"Eve\"}",
            ),
            (
                gate(GateKind::Question, "{\"question\":\"Red?\",\"choices\":[\"yes\",\"no\"]}"),
                "Red?\nFor example: yes | no",
            ),
            (gate(GateKind::Limit(StopReason::CostLimit), ""), "its limit cost_limit"),
        ];
        for (gate, wanted) in rows {
            let form = json!(to_form("Alice", &gate).unwrap());
            let message = form["params"]["message"].as_str().unwrap();
            assert!(message.contains(wanted) && message.contains("Alice"), "{message}");
            assert_eq!(form["params"]["requestedSchema"]["type"], "object");
        }
        let long = gate(GateKind::Approval, &"x".repeat(FORM_BYTES_MAX + 1));
        assert!(to_form("Alice", &long).is_none());
        assert!(to_form("Alice", &OpenGate { shortened: true, ..gate(GateKind::Approval, "{}") }).is_none());
    }

    #[test]
    fn filled_form_is_an_answer_and_a_closed_one_is_none() {
        let (approval, question) = (gate(GateKind::Approval, "{}"), gate(GateKind::Question, "{\"question\":\"?\"}"));
        let rows = [
            (&approval, json!({"action": "accept", "content": {"decision": "approve"}}), Some(AnswerDecision::Approve)),
            (&approval, json!({"action": "accept", "content": {"decision": "deny"}}), Some(AnswerDecision::Deny)),
            (&approval, json!({"action": "decline"}), Some(AnswerDecision::Deny)),
            (&approval, json!({"action": "cancel"}), None),
            (&approval, json!({"action": "accept", "content": {"decision": "maybe"}}), None),
            (&approval, json!({"action": "accept"}), None),
            (&question, json!({"action": "accept", "content": {"answer": "red"}}), Some(AnswerDecision::Answer)),
            (&question, json!({"action": "accept", "content": {"answer": ""}}), None),
            (&question, json!({"action": "decline"}), Some(AnswerDecision::Deny)),
        ];
        for (gate, result, wanted) in rows {
            let answer = to_answer(gate, &serde_json::from_value(result.clone()).unwrap());
            assert_eq!(answer.as_ref().map(|answer| answer.decision), wanted, "{result}");
            assert!(answer.is_none_or(|answer| answer.arguments_sha256 == gate.arguments_sha256));
        }
    }

    #[test]
    fn request_id_names_session_and_gate() {
        let (session, call) = (SessionId::new("chat-A_1").unwrap(), CallId::new("c1-1-1").unwrap());
        assert_eq!(parse_request_id(&to_request_id(&session, &call)), Some((session, call)));
        for id in ["1", "ailoop-gate.", "ailoop-gate.a", "ailoop-gate.a.b.c", "other.a.b"] {
            assert_eq!(parse_request_id(&RequestId::String(id.into())), None, "{id}");
        }
    }
}
