//! A gate as a question to the person at the editor, and the answer. Pure.

use contract::event::{GateKind, GateOpened};
use contract::tool::GateQuestion;
use proto::AnswerGateRequest;
use serde_json::{Value, json};
use session_view::gate_prompt::{DECLINED, answer_request};
use terminal::printable::reveal_invisible;

use super::tool_call::{title_of, value_of};
use super::update::{CallContent, CallStatus, ToolCallFields, ToolKind};

/// Option of a permission request that approves.
const ALLOW: &str = "allow";
/// Option of a permission request that denies.
const REJECT: &str = "reject";
/// Beginning of the options that answer a question; the index of the choice follows.
const CHOICE: &str = "choice-";

/// Question of a gate to the person at the editor.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Question {
    /// A request to the client.
    Request { method: &'static str, params: Value },
    /// A message of the agent; the next prompt is the answer.
    Typed { text: String },
}

/// Reply of the person to a question.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum PersonReply {
    /// An answer, in which the caller sets the session and the command id.
    Answer(Box<AnswerGateRequest>),
    /// The person closed the form without an answer.
    Dismissed,
}

/// Makes the question for a gate. `has_forms`: the client shows forms.
pub(super) fn question_of(session: &str, gate: &GateOpened, has_forms: bool) -> Question {
    let asked = asked_question(gate);
    match gate.kind {
        GateKind::Question if has_forms => {
            Question::Request { method: "elicitation/create", params: form(session, gate, &asked) }
        }
        GateKind::Question if asked.choices.is_empty() => typed_question(gate),
        GateKind::Question => {
            let choices = asked.choices.iter().enumerate().map(|(index, choice)| {
                json!({"optionId": format!("{CHOICE}{index}"), "name": reveal_invisible(choice), "kind": "allow_once"})
            });
            let decline = json!({"optionId": REJECT, "name": "Decline to answer", "kind": "reject_once"});
            permission(session, gate, &choices.chain([decline]).collect::<Vec<_>>())
        }
        GateKind::Approval => permission(session, gate, &yes_or_no("Allow once", "Reject")),
        GateKind::Limit(_) => permission(session, gate, &yes_or_no("Go on for as much again", "End the turn")),
        GateKind::Error(_) => permission(session, gate, &yes_or_no("Try again", "End the turn")),
    }
}

/// Makes the message for a question that the next prompt answers.
pub(super) fn typed_question(gate: &GateOpened) -> Question {
    let GateQuestion { question, choices } = asked_question(gate);
    let listed = choices.iter().fold(String::new(), |listed, choice| format!("{listed}\n- {choice}"));
    let text = format!("\n\n{question}{listed}\n\n(The agent waits for your answer: your next message is the answer.)");
    Question::Typed { text: reveal_invisible(&text) }
}

/// Reads the answer of the client to the question for a gate.
pub(super) fn reply_of(gate: &GateOpened, result: &Value) -> PersonReply {
    let deny = |note: &str| {
        PersonReply::Answer(Box::new(AnswerGateRequest {
            note: Some(note.to_owned()),
            ..answer_request(gate, "deny", None)
        }))
    };
    let answer = |text: String| PersonReply::Answer(Box::new(answer_request(gate, "answer", Some(text))));
    let text_at = |pointer: &str| result.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    match (text_at("/action"), text_at("/outcome/optionId")) {
        ("accept", _) => {
            let filled = [text_at("/content/other"), text_at("/content/answer")];
            match filled.into_iter().find(|text| !text.trim().is_empty()) {
                Some(text) => answer(text.to_owned()),
                None => deny(DECLINED),
            }
        }
        ("decline", _) => deny(DECLINED),
        (_, ALLOW) if gate.kind != GateKind::Question => {
            PersonReply::Answer(Box::new(answer_request(gate, "approve", None)))
        }
        (_, REJECT) => deny(if gate.kind == GateKind::Question { DECLINED } else { "" }),
        (_, option) => {
            let index = option.strip_prefix(CHOICE).and_then(|index| index.parse::<usize>().ok());
            let choice = index.and_then(|index| asked_question(gate).choices.get(index).cloned());
            choice.map_or(PersonReply::Dismissed, answer)
        }
    }
}

/// Describes the call that a gate is about; a gate about no call is shown as one.
pub(super) fn call_fields(gate: &GateOpened) -> ToolCallFields {
    let arguments = gate.arguments.as_ref();
    let title = match gate.kind {
        GateKind::Approval | GateKind::Question => {
            let tool = gate.tool.as_ref().map_or("call", |tool| tool.as_str());
            arguments.map_or_else(|| tool.to_owned(), |arguments| title_of(tool, arguments))
        }
        GateKind::Limit(limit) => format!("The turn is at its limit ({}). Go on?", limit.as_str()),
        GateKind::Error(kind) => format!("The model call failed ({}). Try again?", kind.code()),
    };
    ToolCallFields {
        tool_call_id: gate.gate.to_string(),
        title: Some(title),
        kind: matches!(gate.kind, GateKind::Limit(_) | GateKind::Error(_)).then_some(ToolKind::Other),
        status: Some(CallStatus::Pending),
        // A person must see all of the arguments before approving them, also invisible characters.
        content: arguments.map(|arguments| CallContent::text(reveal_invisible(arguments.get()))),
        raw_input: arguments.map(|arguments| value_of(arguments.get())),
        ..ToolCallFields::default()
    }
}

fn asked_question(gate: &GateOpened) -> GateQuestion {
    let arguments = gate.arguments.as_ref().map_or("", |arguments| arguments.get());
    serde_json::from_str(arguments).unwrap_or_default()
}

fn yes_or_no(yes: &str, no: &str) -> [Value; 2] {
    [
        json!({"optionId": ALLOW, "name": yes, "kind": "allow_once"}),
        json!({"optionId": REJECT, "name": no, "kind": "reject_once"}),
    ]
}

fn permission(session: &str, gate: &GateOpened, options: &[Value]) -> Question {
    let mut call = call_fields(gate);
    if gate.kind == GateKind::Question {
        let GateQuestion { question, .. } = asked_question(gate);
        call.content = Some(CallContent::text(reveal_invisible(&question)));
    }
    let params = json!({"sessionId": session, "toolCall": call, "options": options});
    Question::Request { method: "session/request_permission", params }
}

/// Makes a form for a question. Beside the choices another answer may be given.
fn form(session: &str, gate: &GateOpened, asked: &GateQuestion) -> Value {
    let schema = if asked.choices.is_empty() {
        json!({
            "type": "object",
            "properties": {"answer": {"type": "string", "title": "Answer"}},
            "required": ["answer"]
        })
    } else {
        json!({
            "type": "object",
            "properties": {
                "answer": {"type": "string", "title": "Answer", "enum": asked.choices},
                "other": {"type": "string", "title": "Another answer"}
            }
        })
    };
    json!({
        "mode": "form", "sessionId": session, "toolCallId": gate.gate, "message": asked.question,
        "requestedSchema": schema
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(kind: &Value, arguments: &Value) -> GateOpened {
        serde_json::from_value(json!({
            "gate": "c1-1-1", "kind": kind, "arguments_sha256": "abc", "expires": "2026-01-15T10:30:45.000Z",
            "tool": "write_file", "arguments": arguments
        }))
        .unwrap()
    }

    fn question(choices: &[&str]) -> GateOpened {
        gate(&json!("question"), &json!({"question": "Which?", "choices": choices}))
    }

    fn request(gate: &GateOpened, has_forms: bool) -> (&'static str, Value) {
        match question_of("s", gate, has_forms) {
            Question::Request { method, params } => (method, params),
            Question::Typed { text } => panic!("{text}"),
        }
    }

    fn option(id: &str) -> Value {
        json!({"outcome": {"outcome": "selected", "optionId": id}})
    }

    /// Decision, content and note of the answer.
    fn answer(gate: &GateOpened, result: &Value) -> Option<(String, Option<String>, String)> {
        match reply_of(gate, result) {
            PersonReply::Answer(answer) => {
                assert_eq!((answer.gate.as_str(), answer.arguments_sha256.as_str()), ("c1-1-1", "abc"));
                Some((answer.decision, answer.content, answer.note.unwrap_or_default()))
            }
            PersonReply::Dismissed => None,
        }
    }

    #[test]
    fn approval_shows_all_arguments_with_their_invisible_characters() {
        let gate = gate(&json!("approval"), &json!({"path": "a\u{202e}"}));
        let (method, params) = request(&gate, true);
        assert_eq!(method, "session/request_permission");
        assert_eq!(
            params,
            json!({
                "sessionId": "s",
                "toolCall": {
                    "toolCallId": "c1-1-1", "title": "write_file a<U+202E>", "status": "pending",
                    "content": [{"type": "content", "content": {"type": "text", "text": "{\"path\":\"a<U+202E>\"}"}}],
                    "rawInput": {"path": "a\u{202e}"}
                },
                "options": [
                    {"optionId": "allow", "name": "Allow once", "kind": "allow_once"},
                    {"optionId": "reject", "name": "Reject", "kind": "reject_once"}
                ]
            })
        );
        assert_eq!(answer(&gate, &option("allow")), Some(("approve".to_owned(), None, String::new())));
        assert_eq!(answer(&gate, &option("reject")), Some(("deny".to_owned(), None, String::new())));
        assert_eq!(answer(&gate, &option("choice-0")), None);
        assert_eq!(answer(&gate, &json!({"outcome": {"outcome": "cancelled"}})), None);
        assert_eq!(answer(&gate, &json!(null)), None);
    }

    #[test]
    fn question_is_a_form_where_the_client_shows_forms() {
        let (method, params) = request(&question(&[]), true);
        assert_eq!((method, &params["message"]), ("elicitation/create", &json!("Which?")));
        assert_eq!(params["requestedSchema"]["required"], json!(["answer"]));
        let (_, params) = request(&question(&["a", "b"]), true);
        assert_eq!(params["requestedSchema"]["properties"]["answer"]["enum"], json!(["a", "b"]));
        let gate = question(&["a", "b"]);
        let accept = |content: Value| answer(&gate, &json!({"action": "accept", "content": content}));
        assert_eq!(accept(json!({"answer": "b"})).unwrap().1.as_deref(), Some("b"));
        assert_eq!(accept(json!({"answer": "b", "other": "c"})).unwrap().1.as_deref(), Some("c"));
        assert_eq!(accept(json!({})).unwrap().0, "deny");
        assert_eq!(answer(&gate, &json!({"action": "decline"})).unwrap().0, "deny");
        assert_eq!(answer(&gate, &json!({"action": "cancel"})), None);
    }

    #[test]
    fn question_without_forms_is_a_choice_or_the_next_prompt() {
        let gate = question(&["a", "b"]);
        let (method, params) = request(&gate, false);
        assert_eq!((method, params["options"].as_array().unwrap().len()), ("session/request_permission", 3));
        assert_eq!(answer(&gate, &option("choice-1")).unwrap().1.as_deref(), Some("b"));
        assert_eq!(answer(&gate, &option("choice-7")), None);
        assert_eq!(answer(&gate, &option("allow")), None, "a question cannot be approved");
        assert_eq!(answer(&gate, &option("reject")).unwrap().0, "deny");
        assert!(matches!(question_of("s", &question(&[]), false), Question::Typed { text } if text.contains("Which?")));
    }

    #[test]
    fn limit_and_error_are_asked_as_a_call_of_their_own() {
        for (kind, title) in [
            (json!({"limit": "max_iterations"}), "The turn is at its limit (max_iterations). Go on?"),
            (json!({"error": "overloaded"}), "The model call failed (model_overloaded). Try again?"),
        ] {
            let (_, params) = request(&gate(&kind, &Value::Null), true);
            assert_eq!(params["toolCall"]["title"], title);
        }
    }
}
