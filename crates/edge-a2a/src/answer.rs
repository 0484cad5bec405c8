//! A message to a task that waits: the answer to a gate, or the result of a call.

use contract::Json;
use contract::client_tool::{AnswerToolCall, ClientOutcome};
use contract::command::{Answer, AnswerDecision};
use contract::event::{ClientCallOpened, GateKind, GateOpened};
use contract::tool::sha256_hex;
use contract::{CommandId, ErrorCode, SessionId};
use edge_core::access::{self, ApiCaller};
use edge_core::api::SessionApi;
use edge_core::{commands, params};
use serde::Deserialize;
use serde_json::Value;
use session_api::Method;

use super::errors::A2aError;
use super::requests::MessagePart;
use super::task::AgentTask;

/// Texts that approve, and those that deny.
const APPROVE: [&str; 3] = ["approve", "approved", "yes"];
const DENY: [&str; 3] = ["deny", "denied", "no"];

/// Answer of a message to a waiting task.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TaskAnswer {
    Gate(Answer),
    Call(AnswerToolCall),
}

/// The data part of an answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AnswerData {
    /// The gate or the call, where several wait.
    gate: Option<String>,
    call: Option<String>,
    approved: Option<bool>,
    /// Text of the answer to a question.
    answer: Option<String>,
    note: Option<String>,
    /// Arguments with which an approved call runs instead.
    arguments: Option<Value>,
    /// SHA-256 of the arguments that were shown. Default: that of the arguments of the open gate.
    arguments_sha256: Option<String>,
    /// Whether the client performed the call.
    outcome: Option<ClientOutcome>,
    content: Option<Value>,
}

enum OpenItem<'a> {
    Gate(&'a GateOpened),
    Call(&'a ClientCallOpened),
}

impl TaskAnswer {
    /// Reads the answer to what the task waits for.
    pub(super) fn parse(task: &AgentTask, parts: &[MessagePart]) -> Result<Self, A2aError> {
        let data = parts.iter().find_map(|part| part.data.clone());
        let data: AnswerData = match data {
            Some(Value::Object(data)) => params::parse_object(data)?,
            Some(_) => return Err(A2aError::invalid("the data part of an answer must be an object")),
            None => AnswerData::default(),
        };
        let texts: Vec<&str> = parts.iter().filter_map(|part| part.text.as_deref()).collect();
        let text = texts.join("\n\n");
        match find_item(task, &data)? {
            OpenItem::Gate(gate) => to_gate_answer(gate, data, &text).map(Self::Gate),
            OpenItem::Call(call) => Ok(Self::Call(to_result(call, data, text))),
        }
    }

    /// Sends the answer. The same id changes nothing a second time.
    pub(super) async fn send(
        self,
        api: &SessionApi,
        caller: &ApiCaller,
        session: &SessionId,
        id: &CommandId,
    ) -> Result<(), A2aError> {
        match self {
            Self::Gate(answer) => {
                access::authorize_part(caller, Method::AnswerGate)?;
                api.perform(caller, commands::ANSWER, session, id.as_str(), answer).await?;
            }
            Self::Call(answer) => {
                access::authorize_part(caller, Method::AnswerToolCall)?;
                api.perform(caller, commands::ANSWER_CALL, session, id.as_str(), answer).await?;
            }
        }
        Ok(())
    }
}

/// Returns the id of the command of an answer: a message that comes again is the same answer.
pub(super) fn answer_id(caller: &ApiCaller, message_id: &str) -> Result<CommandId, A2aError> {
    let digest = sha256_hex(format!("{}\0{}\0{message_id}", caller.tenant, caller.subject()).as_bytes());
    Ok(params::parse("messageId", &format!("answer-{}", &digest[..32]))?)
}

fn find_item<'a>(task: &'a AgentTask, data: &AnswerData) -> Result<OpenItem<'a>, A2aError> {
    let gates = task.gates.iter().map(OpenItem::Gate);
    let mut items: Vec<OpenItem<'a>> = gates.chain(task.calls.iter().map(OpenItem::Call)).collect();
    let named = data.gate.as_deref().or(data.call.as_deref());
    if let Some(named) = named {
        let place = items.iter().position(|item| item.id() == named && item.is_gate() == data.gate.is_some());
        let named: String = named.chars().take(80).collect();
        let closed = || {
            A2aError::unsupported(ErrorCode::GateClosed, format!("the task does not wait for an answer to {named:?}"))
        };
        return place.map(|place| items.swap_remove(place)).ok_or_else(closed);
    }
    match items.len() {
        1 => Ok(items.swap_remove(0)),
        0 => {
            let state = task.phase().as_str();
            let message = format!("the task waits for no answer (its state is {state}): leave out `taskId`");
            Err(A2aError::unsupported(ErrorCode::NotNow, message))
        }
        _ => {
            let ids: Vec<&str> = items.iter().map(OpenItem::id).collect();
            let message =
                format!("the task waits for several answers: name `gate` or `call` in a data part: {}", ids.join(", "));
            Err(A2aError::invalid(message))
        }
    }
}

impl OpenItem<'_> {
    fn id(&self) -> &str {
        match self {
            Self::Gate(gate) => gate.gate.as_str(),
            Self::Call(call) => call.call.as_str(),
        }
    }

    const fn is_gate(&self) -> bool {
        match self {
            Self::Gate(_) => true,
            Self::Call(_) => false,
        }
    }
}

fn to_gate_answer(gate: &GateOpened, data: AnswerData, text: &str) -> Result<Answer, A2aError> {
    let sha256 = data.arguments_sha256.unwrap_or_else(|| gate.arguments_sha256.clone());
    let mut answer = Answer::new(gate.gate.clone(), sha256, AnswerDecision::Deny);
    answer.note = data.note;
    answer.arguments = data.arguments.as_ref().map(Json::of);
    let is_question = gate.kind == GateKind::Question;
    let word = text.trim().to_lowercase();
    answer.decision = match data.approved {
        Some(false) => AnswerDecision::Deny,
        _ if is_question => AnswerDecision::Answer,
        Some(true) => AnswerDecision::Approve,
        None if APPROVE.contains(&word.as_str()) => AnswerDecision::Approve,
        None if DENY.contains(&word.as_str()) => AnswerDecision::Deny,
        None => {
            let message =
                "the task waits for a decision: answer `approve` or `deny`, or send a data part with `approved`";
            return Err(A2aError::invalid(message));
        }
    };
    if answer.decision == AnswerDecision::Answer {
        answer.content = Some(data.answer.unwrap_or_else(|| text.to_owned()));
    }
    Ok(answer)
}

fn to_result(call: &ClientCallOpened, data: AnswerData, text: String) -> AnswerToolCall {
    let content = match data.content {
        Some(Value::String(content)) => content,
        Some(content) => content.to_string(),
        None => text,
    };
    AnswerToolCall { call: call.call.clone(), outcome: data.outcome.unwrap_or(ClientOutcome::Ok), content }
}

#[cfg(test)]
mod tests {
    use contract::settings::OnExpiry;
    use contract::{CallId, Timestamp, ToolName};
    use serde_json::json;

    use super::super::errors::A2aErrorKind;
    use super::*;
    use edge_core::turn::TurnPart;

    fn gate(id: &str, kind: GateKind) -> TurnPart {
        TurnPart::GateOpened(Box::new(GateOpened {
            gate: CallId::new(id).unwrap(),
            kind,
            arguments_sha256: "a".repeat(64),
            expires: Timestamp::default(),
            tool: ToolName::new("command").ok(),
            arguments: Json::parse("{}").ok(),
            on_expiry: OnExpiry::Deny,
        }))
    }

    fn parse(gates: Vec<TurnPart>, parts: &Value) -> Result<Answer, A2aError> {
        let mut task = AgentTask::new("s.1".parse().unwrap(), Timestamp::default());
        for gate in gates {
            task.push(gate, Timestamp::default());
        }
        let parts: Vec<MessagePart> = serde_json::from_value(parts.clone()).unwrap();
        match TaskAnswer::parse(&task, &parts)? {
            TaskAnswer::Gate(answer) => Ok(answer),
            TaskAnswer::Call(call) => panic!("{call:?}"),
        }
    }

    #[test]
    fn decision_is_read_from_text_and_from_data() {
        let rows = [
            (json!([{"text": " Approve "}]), AnswerDecision::Approve, None),
            (json!([{"text": "no"}]), AnswerDecision::Deny, None),
            (json!([{"data": {"approved": true, "note": "fine"}}]), AnswerDecision::Approve, Some("fine")),
            (json!([{"data": {"approved": false, "gate": "c1"}}]), AnswerDecision::Deny, None),
            (json!([{"text": "yes"}, {"data": {"approved": false}}]), AnswerDecision::Deny, None),
        ];
        for (parts, decision, note) in rows {
            let answer = parse(vec![gate("c1", GateKind::Approval)], &parts).unwrap();
            assert_eq!((answer.decision, answer.note.as_deref()), (decision, note), "{parts}");
            assert_eq!(answer.arguments_sha256, "a".repeat(64));
        }
        let shown = json!([{"data": {"approved": true, "arguments_sha256": "b"}}]);
        assert_eq!(parse(vec![gate("c1", GateKind::Approval)], &shown).unwrap().arguments_sha256, "b");
    }

    #[test]
    fn answer_of_a_question_is_any_text() {
        for parts in [json!([{"text": "yes"}]), json!([{"data": {"answer": "yes"}}])] {
            let answer = parse(vec![gate("c1", GateKind::Question)], &parts).unwrap();
            assert_eq!((answer.decision, answer.content.as_deref()), (AnswerDecision::Answer, Some("yes")));
        }
        let refused = parse(vec![gate("c1", GateKind::Question)], &json!([{"data": {"approved": false}}])).unwrap();
        assert_eq!((refused.decision, refused.content), (AnswerDecision::Deny, None));
    }

    #[test]
    fn answer_that_is_not_clear_decides_nothing() {
        let one = || vec![gate("c1", GateKind::Approval)];
        let two = vec![gate("c1", GateKind::Approval), gate("c2", GateKind::Approval)];
        let named = json!([{"data": {"approved": true, "gate": "c2"}}]);
        assert_eq!(parse(two.clone(), &named).unwrap().gate.as_str(), "c2");
        let rows = [
            (one(), json!([{"text": "perhaps"}]), A2aErrorKind::InvalidParams),
            (one(), json!([{"data": {"aproved": true}}]), A2aErrorKind::InvalidParams),
            (one(), json!([{"data": [true]}]), A2aErrorKind::InvalidParams),
            (one(), json!([{"data": {"approved": true, "gate": "c9"}}]), A2aErrorKind::UnsupportedOperation),
            (one(), json!([{"data": {"content": "x", "call": "c1"}}]), A2aErrorKind::UnsupportedOperation),
            (two, json!([{"text": "approve"}]), A2aErrorKind::InvalidParams),
            (Vec::new(), json!([{"text": "approve"}]), A2aErrorKind::UnsupportedOperation),
        ];
        for (gates, parts, kind) in rows {
            assert_eq!(parse(gates, &parts).unwrap_err().kind, kind, "{parts}");
        }
    }
}
