//! What the calls take, parsed once at the border: ids, limits, and no field that we do not know.

use std::fmt::Display;
use std::str::FromStr;

use contract::command::{Answer, Because, Configure, ContinuationOverride, SendUserMessage, Start};
use contract::commit::Phase;
use contract::limits::{ITERATIONS_MAX, MESSAGE_BYTES_MAX, TOOL_OUTPUT_BYTES_MAX};
use contract::model::{Content, Message};
use contract::subject::DeadKind;
use contract::{CallId, CommandId, ErrorCode, SessionId, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::failure::Failure;

/// Bytes of a reason or note.
pub const REASON_BYTES_MAX: usize = 4 << 10;
/// Sessions of one list.
pub const LIST_MAX: usize = 1_000;
/// Sessions of one list, when no number is given.
pub const LIST_DEFAULT: usize = 100;

/// A command as a client gives it: its address and its own fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Given<T> {
    /// The session; made by the edge for a `start` without one.
    pub session: SessionId,
    /// The command's id; made by the edge where none is given.
    pub id: CommandId,
    /// Whether the answer waits for the commit.
    pub wait: bool,
    /// What.
    pub body: T,
}

impl<T: Checked> Given<T> {
    /// Parses an address and checks a body. Empty ids mean none.
    pub fn new(session: &str, id: &str, wait: bool, body: T) -> Result<Self, Failure> {
        body.check()?;
        let session = if session.is_empty() && T::MAKES_SESSION { fresh()? } else { session_id(session)? };
        let id = if id.is_empty() { fresh()? } else { parse("command_id", id)? };
        Ok(Self { session, id, wait, body })
    }
}

impl<T: Checked + DeserializeOwned> Given<T> {
    /// Parses a command from its JSON object; an unknown field is refused by its name.
    pub fn from_json(mut params: Map<String, Value>) -> Result<Self, Failure> {
        let session = text(&mut params, "session_id")?;
        let id = text(&mut params, "command_id")?;
        let wait = flag(&mut params, "wait")?.unwrap_or(true) && !flag(&mut params, "no_wait")?.unwrap_or(false);
        T::rename(&mut params)?;
        Self::new(&session, &id, wait, from_object(params)?)
    }
}

/// A command's own fields, and what they must be.
pub trait Checked {
    /// Whether a command without a session id makes one.
    const MAKES_SESSION: bool = false;

    /// Refuses what the loop could not use.
    fn check(&self) -> Result<(), Failure>;

    /// Maps the client's names to those of the contract.
    fn rename(_params: &mut Map<String, Value>) -> Result<(), Failure> {
        Ok(())
    }
}

impl Checked for Start {
    const MAKES_SESSION: bool = true;

    fn check(&self) -> Result<(), Failure> {
        if self.parent.is_some() {
            return Err(Failure::bad_request("`parent` is the loop's own: an agent asks another one by `delegate`"));
        }
        if let Some(prompt) = &self.prompt {
            message(prompt, "prompt")?;
        } else if !self.interactive {
            return Err(Failure::new(
                ErrorCode::EmptyMessage,
                "a session that is not interactive needs a prompt: set `prompt`, or `interactive: true`",
            ));
        }
        for (index, message) in self.messages.iter().enumerate() {
            let plain = match message {
                Message::User { .. } => true,
                Message::Assistant { tool_calls, .. } => tool_calls.is_empty(),
                Message::System { .. } | Message::Tool { .. } => false,
            };
            if !plain {
                return Err(Failure::bad_request(format!("messages[{index}]: only user and assistant texts")));
            }
        }
        steps(self.continuation.as_ref())
    }
}

impl Checked for Configure {
    fn check(&self) -> Result<(), Failure> {
        if self.continuation.is_none() && self.features.is_empty() && self.model.is_none() {
            return Err(Failure::bad_request("nothing to change: give `continuation`, `features` or `model`"));
        }
        steps(self.continuation.as_ref())
    }
}

impl Checked for SendUserMessage {
    fn check(&self) -> Result<(), Failure> {
        message(&self.content, "content")
    }

    fn rename(params: &mut Map<String, Value>) -> Result<(), Failure> {
        match (params.remove("text"), params.contains_key("content")) {
            (Some(_), true) => Err(Failure::bad_request("give either `text` or `content`, not both")),
            (Some(text), false) => {
                params.insert("content".to_owned(), text);
                Ok(())
            }
            (None, true) => Ok(()),
            (None, false) => Err(Failure::new(ErrorCode::EmptyMessage, "`text` is missing")),
        }
    }
}

impl Checked for Because {
    fn check(&self) -> Result<(), Failure> {
        short(self.reason.as_deref(), "reason")
    }
}

impl Checked for Answer {
    fn check(&self) -> Result<(), Failure> {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if self.arguments_sha256.len() != 64 || !self.arguments_sha256.bytes().all(hex) {
            return Err(Failure::bad_request("`arguments_sha256` must be 64 hex digits, as in `gate.opened`"));
        }
        match &self.content {
            Some(content) if content.len() > TOOL_OUTPUT_BYTES_MAX => {
                let bytes = content.len();
                let message = format!("`content` has {bytes} bytes, at most {TOOL_OUTPUT_BYTES_MAX} are taken");
                return Err(Failure::new(ErrorCode::TooLarge, message));
            }
            Some(_) | None => {}
        }
        short(self.note.as_deref(), "note")
    }
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct One {
    /// Which.
    pub session_id: SessionId,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Of which session.
    pub session_id: SessionId,
    /// Which.
    pub call: CallId,
}

/// What waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub struct Gates {
    /// Only in this session.
    pub session_id: Option<SessionId>,
    /// At most this many; 100 where none or zero is given.
    pub limit: usize,
}

impl Gates {
    /// How many.
    pub fn count(&self) -> usize {
        List { limit: self.limit, phase: None }.count()
    }
}

/// Which sessions.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub struct List {
    /// Only those in this phase.
    pub phase: Option<Phase>,
    /// At most this many; 100 where none or zero is given.
    pub limit: usize,
}

impl List {
    /// How many to give.
    pub fn count(&self) -> usize {
        if self.limit == 0 { LIST_DEFAULT } else { self.limit.min(LIST_MAX) }
    }
}

/// What to fold again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replay {
    /// The session.
    pub session_id: SessionId,
    /// The last slot that counts; the log's end where none is given.
    #[serde(default)]
    pub at: Option<u64>,
}

/// Whose dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub struct DeadList {
    /// Only those of this session.
    pub session_id: Option<SessionId>,
}

/// Which dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeadOne {
    /// Its session.
    pub session_id: SessionId,
    /// What it was.
    pub kind: DeadKind,
    /// Its id, as the list shows it.
    pub id: CommandId,
}

/// Whose statistics.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub struct Stats {
    /// Only sessions that began at or after this instant.
    pub since: Option<Timestamp>,
}

/// What to watch.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// The session.
    pub session_id: SessionId,
    /// The first `seq` wanted; 0 and 1 mean from the beginning.
    #[serde(default, alias = "seq")]
    pub from_seq: u64,
    /// Leave chunks out.
    #[serde(default)]
    pub no_chunks: bool,
}

/// Nothing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Reads a JSON object; the error names the field.
pub fn from_object<T: DeserializeOwned>(params: Map<String, Value>) -> Result<T, Failure> {
    serde_path_to_error::deserialize(Value::Object(params)).map_err(|error| {
        let path = error.path().to_string();
        // Of what concerns the object itself the parser names the field.
        if path == "." { Failure::bad_request_of(error.inner()) } else { bad_field(&path, error.inner()) }
    })
}

/// Reads a session id.
pub fn session_id(text: &str) -> Result<SessionId, Failure> {
    if text.is_empty() {
        return Err(Failure::bad_request("`session_id` is missing"));
    }
    parse("session_id", text)
}

/// A field that is not what the contract says, as its parser tells.
fn bad_field(field: &str, error: impl Display) -> Failure {
    Failure::bad_request_of(format!("`{field}`: {error}"))
}

/// Reads one word of a closed set, as the contract spells it.
pub fn word<T: DeserializeOwned>(field: &str, text: &str) -> Result<T, Failure> {
    serde_json::from_value(Value::String(text.to_owned())).map_err(|error| bad_field(field, error))
}

/// Reads an id.
pub fn parse<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, Failure> {
    text.parse().map_err(|error| bad_field(field, error))
}

/// Makes an id, sortable by time.
pub fn fresh<T: FromStr<Err: Display>>() -> Result<T, Failure> {
    let made: Result<T, T::Err> = uuid::Uuid::now_v7().to_string().parse();
    made.map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))
}

fn text(params: &mut Map<String, Value>, field: &str) -> Result<String, Failure> {
    match params.remove(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Failure::bad_request(format!("`{field}` must be a string"))),
    }
}

fn flag(params: &mut Map<String, Value>, field: &str) -> Result<Option<bool>, Failure> {
    match params.remove(field) {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(flag)),
        Some(_) => Err(Failure::bad_request(format!("`{field}` must be true or false"))),
    }
}

fn steps(continuation: Option<&ContinuationOverride>) -> Result<(), Failure> {
    match continuation.and_then(|continuation| continuation.max_iterations) {
        Some(steps) if !(1..=ITERATIONS_MAX).contains(&steps) => {
            Err(Failure::bad_request(format!("continuation.max_iterations must be 1 to {ITERATIONS_MAX}, got {steps}")))
        }
        Some(_) | None => Ok(()),
    }
}

fn message(content: &Content, field: &str) -> Result<(), Failure> {
    if content.is_empty() {
        return Err(Failure::new(ErrorCode::EmptyMessage, format!("`{field}` holds no text")));
    }
    let bytes = content.bytes();
    if bytes > MESSAGE_BYTES_MAX {
        return Err(Failure::new(
            ErrorCode::TooLarge,
            format!("`{field}` has {bytes} bytes, at most {MESSAGE_BYTES_MAX} are taken"),
        ));
    }
    Ok(())
}

fn short(text: Option<&str>, field: &str) -> Result<(), Failure> {
    match text {
        Some(text) if text.len() > REASON_BYTES_MAX => Err(Failure::new(
            ErrorCode::TooLarge,
            format!("`{field}` has {} bytes, at most {REASON_BYTES_MAX} are taken", text.len()),
        )),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use contract::command::{AnswerDecision, Mode};
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!("not an object") };
        map
    }

    fn refused<T: Checked + DeserializeOwned>(value: Value) -> (ErrorCode, String) {
        match Given::<T>::from_json(object(value)) {
            Ok(given) => panic!("taken: {}", given.session),
            Err(failure) => (failure.code, failure.message),
        }
    }

    #[test]
    fn a_start_makes_the_ids_that_are_missing() {
        let given = Given::<Start>::from_json(object(json!({"prompt": "hi", "agent": "e"}))).unwrap();
        assert_eq!(given.session.as_str().len(), 36);
        assert!(given.wait);
        let given = Given::<Start>::from_json(object(
            json!({"session_id": "s", "command_id": "c", "prompt": "hi", "no_wait": true}),
        ));
        let given = given.unwrap();
        assert_eq!((given.session.as_str(), given.id.as_str(), given.wait), ("s", "c", false));
    }

    #[test]
    fn what_is_refused_says_why() {
        let long = "x".repeat(MESSAGE_BYTES_MAX + 1);
        let rows = [
            (refused::<Start>(json!({"prompt": " \n"})), ErrorCode::EmptyMessage, "prompt"),
            (refused::<Start>(json!({})), ErrorCode::EmptyMessage, "interactive"),
            (refused::<Start>(json!({"prompt": long})), ErrorCode::TooLarge, "1048577"),
            (refused::<Start>(json!({"prompt": "x", "colour": 1})), ErrorCode::BadRequest, "colour"),
            (refused::<Start>(json!({"prompt": "x", "session_id": "a.b"})), ErrorCode::BadRequest, "a.b"),
            (refused::<Start>(json!({"prompt": "x", "agent": "E!"})), ErrorCode::BadRequest, "E!"),
            (
                refused::<Start>(json!({"prompt": "x", "continuation": {"max_iterations": 0}})),
                ErrorCode::BadRequest,
                "max_iterations",
            ),
            (
                refused::<Start>(json!({"prompt": "x", "messages": [{"role": "system", "content": "obey"}]})),
                ErrorCode::BadRequest,
                "messages[0]",
            ),
            (
                refused::<Start>(
                    json!({"prompt": "x", "parent": {"session_id": "p", "call": "c", "slot": 1, "agents": []}}),
                ),
                ErrorCode::BadRequest,
                "parent",
            ),
            (refused::<Configure>(json!({"session_id": "s"})), ErrorCode::BadRequest, "nothing to change"),
            (
                refused::<Configure>(json!({"session_id": "s", "continuation": {"max_iterations": 201}})),
                ErrorCode::BadRequest,
                "max_iterations",
            ),
            (refused::<Configure>(json!({"session_id": "s", "agent": "e"})), ErrorCode::BadRequest, "agent"),
            (refused::<SendUserMessage>(json!({"text": "x"})), ErrorCode::BadRequest, "session_id"),
            (refused::<SendUserMessage>(json!({"session_id": "s"})), ErrorCode::EmptyMessage, "text"),
            (refused::<SendUserMessage>(json!({"session_id": "s", "text": ""})), ErrorCode::EmptyMessage, "content"),
            (
                refused::<SendUserMessage>(json!({"session_id": "s", "text": "x", "mode": "shout"})),
                ErrorCode::BadRequest,
                "shout",
            ),
            (refused::<Because>(json!({"session_id": "s", "wait": 1})), ErrorCode::BadRequest, "wait"),
            (refused::<Because>(json!({"session_id": 7})), ErrorCode::BadRequest, "session_id"),
            (
                refused::<Answer>(
                    json!({"session_id": "s", "gate": "c", "arguments_sha256": "0".repeat(64), "decision": "maybe"}),
                ),
                ErrorCode::BadRequest,
                "maybe",
            ),
            (
                refused::<Answer>(
                    json!({"session_id": "s", "gate": "c", "arguments_sha256": "0", "decision": "approve"}),
                ),
                ErrorCode::BadRequest,
                "arguments_sha256",
            ),
            (
                refused::<Answer>(json!({
                    "session_id": "s", "gate": "c", "arguments_sha256": "0".repeat(64), "decision": "deny",
                    "approved": true,
                })),
                ErrorCode::BadRequest,
                "approved",
            ),
        ];
        for ((code, message), wanted, part) in rows {
            assert_eq!(code, wanted, "{message}");
            assert!(message.contains(part), "{message} does not name {part}");
        }
    }

    #[test]
    fn text_and_content_are_one_field() {
        let given =
            Given::<SendUserMessage>::from_json(object(json!({"session_id": "s", "text": "hi", "mode": "queue"})));
        let given = given.unwrap();
        assert_eq!((given.body.content, given.body.mode), (Content::from("hi"), Mode::Queue));
        let parts = json!({"session_id": "s", "content": [{"type": "text", "text": "hi"}]});
        assert!(Given::<SendUserMessage>::from_json(object(parts)).is_ok());
        assert_eq!(word::<AnswerDecision>("decision", "deny").unwrap(), AnswerDecision::Deny);
    }
}
