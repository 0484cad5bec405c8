//! What the calls take, parsed once at the border: ids, limits, and no field that we do not know.

use std::cmp::Reverse;
use std::fmt::Display;
use std::str::FromStr;

use contract::command::{Answer, Configure, ContinuationOverride, ControlReason, SendUserMessage, Start};
use contract::commit::{ListPlace, Phase};
use contract::json::Size;
use contract::limits::{JSON_DEPTH_MAX, JSON_VALUES_MAX};
use contract::subject::DeadKind;
use contract::{AgentId, CallId, CommandId, ErrorCode, SessionId, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use session::check;

use crate::api_error::ApiError;

/// Levels of objects and lists in which the fields of a command may themselves stand: batch, request, parameters, messages
/// and their parts.
const FRAME_DEPTH: usize = 8;
/// Sessions of one list.
pub(crate) const LIST_MAX: usize = 1_000;
/// Sessions of one list, when no number is given.
pub(crate) const LIST_DEFAULT: usize = 100;

/// A command as a client gives it: its address and its own fields.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CommandRequest<T> {
    /// The session; made by the edge for a `start` without one.
    pub(crate) session: SessionId,
    /// The command's id; made by the edge where none is given.
    pub(crate) id: CommandId,
    /// Whether the answer waits for the commit.
    pub(crate) is_awaited: bool,
    /// What.
    pub(crate) body: T,
}

/// A command whose body is not checked yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UncheckedCommand<T>(CommandRequest<T>);

impl<T: CommandBody> UncheckedCommand<T> {
    /// Parses an address. Empty ids mean none.
    pub(crate) fn new(session: &str, id: &str, is_awaited: bool, body: T) -> Result<Self, ApiError> {
        let session =
            if session.is_empty() && T::CAN_CREATE_SESSION { generate_id()? } else { parse_session_id(session)? };
        let id = if id.is_empty() { generate_id()? } else { parse("command_id", id)? };
        Ok(Self(CommandRequest { session, id, is_awaited, body }))
    }

    /// Whether the check takes milliseconds.
    pub(crate) fn is_costly(&self) -> bool {
        self.0.body.is_costly()
    }

    /// Checks the body.
    pub(crate) fn validate(self) -> Result<CommandRequest<T>, ApiError> {
        self.0.body.validate()?;
        Ok(self.0)
    }
}

impl<T: CommandBody + DeserializeOwned> UncheckedCommand<T> {
    /// Parses a command from its JSON object; an unknown field is refused by its name.
    pub(crate) fn from_json(mut params: Map<String, Value>) -> Result<Self, ApiError> {
        let session = take_text(&mut params, "session_id")?;
        let id = take_text(&mut params, "command_id")?;
        let is_awaited =
            take_flag(&mut params, "wait")?.unwrap_or(true) && !take_flag(&mut params, "no_wait")?.unwrap_or(false);
        T::rename_fields(&mut params)?;
        Self::new(&session, &id, is_awaited, parse_object(params)?)
    }
}

/// A command's own fields, and what they must be.
pub(crate) trait CommandBody {
    /// Whether a command without a session id makes one.
    const CAN_CREATE_SESSION: bool = false;

    /// Refuses what the loop could not use.
    fn validate(&self) -> Result<(), ApiError>;

    /// Whether the check takes milliseconds: it compiles patterns.
    fn is_costly(&self) -> bool {
        false
    }

    /// Maps the client's names to those of the contract.
    fn rename_fields(_params: &mut Map<String, Value>) -> Result<(), ApiError> {
        Ok(())
    }
}

impl CommandBody for Start {
    const CAN_CREATE_SESSION: bool = true;

    fn validate(&self) -> Result<(), ApiError> {
        if self.parent.is_some() {
            return Err(ApiError::bad_request("`parent` is the loop's own: an agent asks another one by `delegate`"));
        }
        if self.prompt.is_none() && !self.interactive {
            return Err(ApiError::new(
                ErrorCode::EmptyMessage,
                "a session that is not interactive needs a prompt: set `prompt`, or `interactive: true`",
            ));
        }
        Ok(check::start(self)?)
    }

    fn is_costly(&self) -> bool {
        self.continuation.as_ref().is_some_and(has_patterns)
    }
}

impl CommandBody for Configure {
    fn validate(&self) -> Result<(), ApiError> {
        Ok(check::configure(self)?)
    }

    fn is_costly(&self) -> bool {
        self.continuation.as_ref().is_some_and(has_patterns)
    }
}

fn has_patterns(settings: &ContinuationOverride) -> bool {
    let lists = [&settings.continuation_patterns, &settings.termination_patterns];
    lists.into_iter().flatten().any(|list| !list.is_empty())
}

impl CommandBody for SendUserMessage {
    fn validate(&self) -> Result<(), ApiError> {
        Ok(check::message(self)?)
    }

    fn rename_fields(params: &mut Map<String, Value>) -> Result<(), ApiError> {
        match (params.remove("text"), params.contains_key("content")) {
            (Some(_), true) => Err(ApiError::bad_request("give either `text` or `content`, not both")),
            (Some(text), false) => {
                params.insert("content".to_owned(), text);
                Ok(())
            }
            (None, true) => Ok(()),
            (None, false) => Err(ApiError::new(ErrorCode::EmptyMessage, "`text` is missing")),
        }
    }
}

impl CommandBody for ControlReason {
    fn validate(&self) -> Result<(), ApiError> {
        Ok(check::reason(self)?)
    }
}

impl CommandBody for Answer {
    fn validate(&self) -> Result<(), ApiError> {
        Ok(check::answer(self)?)
    }
}

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionParams {
    /// Which.
    pub(crate) session_id: SessionId,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolResultParams {
    /// Of which session.
    pub(crate) session_id: SessionId,
    /// Which.
    pub(crate) call: CallId,
}

/// What waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListGatesParams {
    /// Only in this session.
    pub(crate) session_id: Option<SessionId>,
    /// At most this many; 100 where none or zero is given.
    pub(crate) limit: usize,
}

impl ListGatesParams {
    /// How many.
    pub(crate) fn effective_limit(&self) -> usize {
        clamp_limit(self.limit)
    }
}

/// Which sessions.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListSessionsParams {
    /// Only those in this phase.
    pub(crate) phase: Option<Phase>,
    /// At most this many; 100 where none or zero is given.
    pub(crate) limit: usize,
    /// Only those behind this place, as an earlier list gave it.
    pub(crate) cursor: Option<ListCursor>,
}

impl ListSessionsParams {
    /// How many to give.
    pub(crate) fn effective_limit(&self) -> usize {
        clamp_limit(self.limit)
    }
}

/// How many entries a list has where a client wants so many.
fn clamp_limit(limit: usize) -> usize {
    if limit == 0 { LIST_DEFAULT } else { limit.min(LIST_MAX) }
}

/// A place in the list of sessions: behind this one. It stays valid when sessions come and go.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct ListCursor {
    /// When the session began.
    pub(crate) started: Timestamp,
    /// The session.
    pub(crate) session: SessionId,
}

impl ListCursor {
    /// The place that it names.
    pub(crate) fn position(&self) -> ListPlace {
        (Reverse(self.started), Reverse(self.session.clone()))
    }
}

impl std::fmt::Display for ListCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}~{}", self.started, self.session)
    }
}

impl FromStr for ListCursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('~').and_then(|(started, session)| {
            Some(Self { started: Timestamp::parse(started)?, session: SessionId::new(session).ok()? })
        });
        parts.ok_or_else(|| "it is no cursor of an earlier list: send `next_cursor` as it came".to_owned())
    }
}

impl TryFrom<String> for ListCursor {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Which turns of a session.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TranscriptParams {
    /// The session.
    pub(crate) session_id: SessionId,
    /// Only turns after this one.
    #[serde(default)]
    pub(crate) after: u32,
    /// At most this many; 100 where none or zero is given.
    #[serde(default)]
    pub(crate) limit: usize,
}

impl TranscriptParams {
    /// How many turns to give.
    pub(crate) fn effective_limit(&self) -> usize {
        clamp_limit(self.limit)
    }
}

/// What to fold again.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplayParams {
    /// The session.
    pub(crate) session_id: SessionId,
    /// The last slot that counts; the log's end where none is given.
    #[serde(default)]
    pub(crate) at: Option<u64>,
}

/// Whose dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListDeadLettersParams {
    /// Only those of this session.
    pub(crate) session_id: Option<SessionId>,
}

/// Which dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeadLetterParams {
    /// Its session.
    pub(crate) session_id: SessionId,
    /// What it was.
    pub(crate) kind: DeadKind,
    /// Its id, as the list shows it.
    pub(crate) id: CommandId,
}

/// Parameters of `mail.list`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ListMailParams {
    /// The mailbox, which may be an agent's, by key or alias; that of people where none is given.
    pub(crate) mailbox: Option<AgentId>,
}

/// Parameters of `mail.send`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendMailParams {
    /// The sender's mailbox, which must not be an agent's; that of people where none is given.
    #[serde(default)]
    pub(crate) mailbox: Option<AgentId>,
    /// Chosen by the client for safe repetition; made here where none is given.
    #[serde(default)]
    pub(crate) command_id: Option<CommandId>,
    /// An agent's key, alias or name, or `user` for people.
    pub(crate) to: String,
    /// One line, at most 1 KiB as JSON; not empty.
    pub(crate) subject: String,
    /// At most 32 KiB as JSON; not empty.
    pub(crate) text: String,
}

/// Parameters of `mail.reply`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplyMailParams {
    /// The mailbox that the mail is in, which must not be an agent's; that of people where none is given.
    #[serde(default)]
    pub(crate) mailbox: Option<AgentId>,
    /// Chosen by the client for safe repetition; made here where none is given.
    #[serde(default)]
    pub(crate) command_id: Option<CommandId>,
    /// The mail's id, as the list shows it.
    pub(crate) id: String,
    /// The answer, at most 32 KiB as JSON. It must be given: the mail is closed without an answer where it is empty.
    pub(crate) text: String,
}

/// Whose statistics.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StatsParams {
    /// Only sessions that began at or after this instant.
    pub(crate) since: Option<Timestamp>,
}

/// What to watch.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WatchParams {
    /// The session.
    pub(crate) session_id: SessionId,
    /// The first `seq` wanted; 0 and 1 mean from the beginning.
    #[serde(default, alias = "seq")]
    pub(crate) from_seq: u64,
    /// Leave chunks out.
    #[serde(default)]
    pub(crate) no_chunks: bool,
}

/// Nothing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParams {}

/// Reads a JSON object; the error names the field.
pub(crate) fn parse_object<T: DeserializeOwned>(params: Map<String, Value>) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(Value::Object(params)).map_err(|error| {
        let (path, why) = (error.path().to_string(), error.inner().to_string());
        // These name their field themselves.
        let named = why.starts_with("unknown field") || why.starts_with("missing field");
        match why.as_str() {
            "data did not match any variant of untagged enum Content" => {
                ApiError::bad_request(format!("`{path}` must be a text, or a list of parts with a `type`"))
            }
            _ if path == "." || named && !path.contains('.') => ApiError::bad_request_of(error.inner()),
            _ => bad_field(&path, error.inner()),
        }
    })
}

/// Refuses JSON before it is parsed: a value takes far more memory than its text.
pub(crate) fn check_size(what: &str, text: &str) -> Result<(), ApiError> {
    let Size { depth, values } = Size::of(text.as_bytes());
    let levels = JSON_DEPTH_MAX + FRAME_DEPTH;
    if depth > levels {
        let message = format!("{what} is nested {depth} levels deep, at most {levels} are taken; flatten it");
        return Err(ApiError::bad_request(message));
    }
    if values > JSON_VALUES_MAX {
        let message = format!("{what} holds {values} values and names, at most {JSON_VALUES_MAX} are taken; send less");
        return Err(ApiError::new(ErrorCode::TooLarge, message));
    }
    Ok(())
}

/// Reads a session id.
pub(crate) fn parse_session_id(text: &str) -> Result<SessionId, ApiError> {
    if text.is_empty() {
        return Err(ApiError::bad_request("`session_id` is missing"));
    }
    parse("session_id", text)
}

/// A field that is not what the contract says, as its parser tells.
fn bad_field(field: &str, error: impl Display) -> ApiError {
    ApiError::bad_request_of(format!("`{field}`: {error}"))
}

/// Reads one word of a closed set, as the contract spells it.
pub(crate) fn parse_word<T: DeserializeOwned>(field: &str, text: &str) -> Result<T, ApiError> {
    serde_json::from_value(Value::String(text.to_owned())).map_err(|error| bad_field(field, error))
}

/// Reads an id.
pub(crate) fn parse<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<T, ApiError> {
    text.parse().map_err(|error| bad_field(field, error))
}

/// Reads an id that may be left out as an empty text.
pub(crate) fn parse_optional<T: FromStr<Err: Display>>(field: &str, text: &str) -> Result<Option<T>, ApiError> {
    if text.is_empty() { Ok(None) } else { parse(field, text).map(Some) }
}

/// Makes an id, sortable by time.
pub(crate) fn generate_id<T: FromStr<Err: Display>>() -> Result<T, ApiError> {
    let id: Result<T, T::Err> = uuid::Uuid::now_v7().to_string().parse();
    id.map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))
}

fn take_text(params: &mut Map<String, Value>, field: &str) -> Result<String, ApiError> {
    match params.remove(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(ApiError::bad_request(format!("`{field}` must be a string"))),
    }
}

fn take_flag(params: &mut Map<String, Value>, field: &str) -> Result<Option<bool>, ApiError> {
    match params.remove(field) {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(flag)),
        Some(_) => Err(ApiError::bad_request(format!("`{field}` must be true or false"))),
    }
}

#[cfg(test)]
mod tests {
    use contract::command::{AnswerDecision, MessageMode};
    use contract::model::Content;
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        let Value::Object(map) = value else { panic!("not an object") };
        map
    }

    fn accept<T: CommandBody + DeserializeOwned>(value: Value) -> CommandRequest<T> {
        UncheckedCommand::from_json(object(value)).and_then(UncheckedCommand::validate).unwrap()
    }

    fn refuse<T: CommandBody + DeserializeOwned>(value: Value) -> (ErrorCode, String) {
        match UncheckedCommand::<T>::from_json(object(value)).and_then(UncheckedCommand::validate) {
            Ok(command) => panic!("taken: {}", command.session),
            Err(error) => (error.code, error.message),
        }
    }

    #[test]
    fn start_without_ids_gets_generated_ids() {
        let command = accept::<Start>(json!({"prompt": "hi", "agent": "e"}));
        assert_eq!(command.session.as_str().len(), 36);
        assert!(command.is_awaited);
        let command = accept::<Start>(json!({"session_id": "s", "command_id": "c", "prompt": "hi", "no_wait": true}));
        assert_eq!((command.session.as_str(), command.id.as_str(), command.is_awaited), ("s", "c", false));
    }

    /// What is refused: the command, its parameters, the code, and what the message must hold: the field and what to do.
    #[allow(clippy::too_many_lines, reason = "one table")]
    fn refusals() -> Vec<((ErrorCode, String), ErrorCode, Vec<&'static str>)> {
        use ErrorCode::{BadRequest, EmptyMessage, TooLarge};
        let long = |bytes: usize| "x".repeat(bytes);
        let start = |more: Value| {
            let mut params = object(json!({"prompt": "x"}));
            params.extend(object(more));
            refuse::<Start>(Value::Object(params))
        };
        let over = |settings: Value| start(json!({"continuation": settings}));
        let configure = |settings: Value| refuse::<Configure>(json!({"session_id": "s", "continuation": settings}));
        let send = |content: Value| refuse::<SendUserMessage>(json!({"session_id": "s", "content": content}));
        let control = |more: Value| {
            let mut params = object(json!({"session_id": "s"}));
            params.extend(object(more));
            refuse::<ControlReason>(Value::Object(params))
        };
        let answer = |more: Value| {
            let sha = "0".repeat(64);
            let mut params = json!({"session_id": "s", "gate": "c", "arguments_sha256": sha, "decision": "approve"});
            object(more).into_iter().for_each(|(field, value)| params[field] = value);
            refuse::<Answer>(params)
        };
        let nested = |levels: usize| (1..levels).fold(json!(1), |inner, _| json!([inner]));
        let user = |text: &str| json!({"role": "user", "content": text});
        let part = json!({"type": "text", "text": "x"});
        let names = |count: usize| (0..count).map(|n| format!("n{n}")).collect::<Vec<_>>();
        vec![
            // start
            (refuse::<Start>(json!({})), EmptyMessage, vec!["`prompt`", "interactive"]),
            (start(json!({"prompt": " \n"})), EmptyMessage, vec!["`prompt`", "write something"]),
            (start(json!({"prompt": long(1_048_577)})), TooLarge, vec!["`prompt`", "1048577", "1048576", "file"]),
            (start(json!({"prompt": 7})), BadRequest, vec!["`prompt`", "text, or a list of parts"]),
            (start(json!({"prompt": []})), EmptyMessage, vec!["`prompt`"]),
            (start(json!({"prompt": vec![part.clone(); 65]})), TooLarge, vec!["`prompt`", "65 parts", "64"]),
            (start(json!({"colour": 1})), BadRequest, vec!["colour", "expected one of"]),
            (start(json!({"session_id": "a.b"})), BadRequest, vec!["a.b"]),
            (start(json!({"session_id": 7})), BadRequest, vec!["`session_id`", "string"]),
            (start(json!({"command_id": [1]})), BadRequest, vec!["`command_id`", "string"]),
            (start(json!({"wait": "yes"})), BadRequest, vec!["`wait`", "true or false"]),
            (start(json!({"agent": "E!"})), BadRequest, vec!["`agent`", "E!"]),
            (start(json!({"agent": 1})), BadRequest, vec!["`agent`"]),
            (start(json!({"model": " "})), BadRequest, vec!["`model`", "leave it out"]),
            (start(json!({"model": long(1_025)})), TooLarge, vec!["`model`", "1025", "1024"]),
            (start(json!({"interactive": "yes"})), BadRequest, vec!["`interactive`", "boolean"]),
            (
                start(json!({"parent": {"session_id": "p", "call": "c", "slot": 1, "agents": []}})),
                BadRequest,
                vec!["`parent`", "`delegate`"],
            ),
            (
                start(json!({"messages": vec![user("x"); 1_001]})),
                TooLarge,
                vec!["`messages`", "1001", "1000", "latest"],
            ),
            (start(json!({"messages": [user("x"), user(" ")]})), EmptyMessage, vec!["messages[1]"]),
            (start(json!({"messages": [{"role": "assistant", "content": ""}]})), EmptyMessage, vec!["messages[0]"]),
            (start(json!({"messages": [user(&long(1_048_577))]})), TooLarge, vec!["messages[0].content", "1048576"]),
            (
                start(json!({"messages": [{"role": "assistant", "content": long(1_048_577)}]})),
                TooLarge,
                vec!["messages[0]", "1048576"],
            ),
            (
                start(json!({"messages": [{"role": "system", "content": "obey"}]})),
                BadRequest,
                vec!["messages[0]", "user and assistant"],
            ),
            (
                start(json!({"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]})),
                BadRequest,
                vec!["messages[0]"],
            ),
            (start(json!({"messages": [{"role": "robot", "content": "x"}]})), BadRequest, vec!["messages[0]", "robot"]),
            (
                start(json!({"messages": [{"role": "assistant", "content": "x", "tool_calls": [
                    {"function": {"name": "f", "arguments": "{}"}},
                ]}]})),
                BadRequest,
                vec!["messages[0]", "without calls"],
            ),
            (
                start(json!({"messages": [{"role": "assistant", "content": "x", "replay": {
                    "family": "f", "model": "m", "parts": [nested(35)],
                }}]})),
                BadRequest,
                vec!["messages[0].replay", "32"],
            ),
            (
                start(json!({"messages": [{"role": "user", "content": [
                    {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}},
                ]}]})),
                BadRequest,
                vec!["messages[0].content", "image_url", "https:"],
            ),
            (start(json!({"resume_from": {"session_id": "a b"}})), BadRequest, vec!["resume_from.session_id"]),
            (start(json!({"resume_from": {"session_id": "a", "at": -1}})), BadRequest, vec!["resume_from.at", "u64"]),
            (start(json!({"parameters": {"a": nested(34)}})), BadRequest, vec!["`parameters`", "34", "32", "flatten"]),
            (start(json!({"parameters": {"a": long(16 << 10)}})), TooLarge, vec!["`parameters`", "16384"]),
            (start(json!({"parameters": {"a": vec![1; 1_024]}})), TooLarge, vec!["`parameters`", "1024"]),
            (start(json!({"parameters": [1]})), BadRequest, vec!["`parameters`", "map"]),
            (start(json!({"features": {"enable": names(65)}})), TooLarge, vec!["features.enable", "65", "64"]),
            (start(json!({"features": {"disable": [""]}})), BadRequest, vec!["features.disable[0]"]),
            (start(json!({"features": {"enable": ["a"], "disable": ["a"]}})), BadRequest, vec!["features", "\"a\""]),
            (start(json!({"features": {"on": []}})), BadRequest, vec!["features", "`on`", "expected"]),
            (start(json!({"tools": names(257)})), TooLarge, vec!["`tools`", "257", "256", "leave"]),
            (start(json!({"tools": ["fine", "not fine"]})), BadRequest, vec!["tools[1]", "tools.list"]),
            (
                start(json!({"streaming": {"idle": 0}})),
                BadRequest,
                vec!["streaming.idle", "1 to 3600 seconds", "got 0"],
            ),
            (start(json!({"streaming": {"connect": u64::MAX}})), BadRequest, vec!["streaming.connect", "3600"]),
            (start(json!({"streaming": {"first_byte": 3_601}})), BadRequest, vec!["streaming.first_byte", "3600"]),
            (start(json!({"streaming": {"chunk_ms": 10_001}})), BadRequest, vec!["streaming.chunk_ms", "10000"]),
            (start(json!({"streaming": {"chunk_bytes": 1_048_577}})), BadRequest, vec!["streaming.chunk_bytes"]),
            // continuation
            (over(json!({"max_iterations": 0})), BadRequest, vec!["continuation.max_iterations", "1 to 200", "got 0"]),
            (over(json!({"max_iterations": 201})), BadRequest, vec!["continuation.max_iterations", "got 201"]),
            (over(json!({"max_iterations": "5"})), BadRequest, vec!["continuation.max_iterations", "u32"]),
            (over(json!({"timeout": 0})), BadRequest, vec!["continuation.timeout", "1 to 604800 seconds"]),
            (
                over(json!({"timeout": 1_000_000_000_000_000_000_u64})),
                BadRequest,
                vec!["continuation.timeout", "got 1000000000000000000"],
            ),
            (over(json!({"timeout": -1})), BadRequest, vec!["continuation.timeout"]),
            (over(json!({"patience": 1})), BadRequest, vec!["continuation", "patience", "expected one of"]),
            (over(json!({"on_limit": "shout"})), BadRequest, vec!["continuation.on_limit", "shout", "expected"]),
            (over(json!({"limits": {"tokens": u64::MAX}})), BadRequest, vec!["continuation.limits.tokens", "got"]),
            (over(json!({"limits": {"cost_usd": -1.0}})), BadRequest, vec!["continuation.limits.cost_usd", "got -1"]),
            (over(json!({"limits": {"cost_usd": 1e300}})), BadRequest, vec!["continuation.limits.cost_usd"]),
            (over(json!({"limits": {"tool_calls": u32::MAX}})), BadRequest, vec!["continuation.limits.tool_calls"]),
            (over(json!({"limits": {"repetition": u32::MAX}})), BadRequest, vec!["continuation.limits.repetition"]),
            (over(json!({"limits": {"no_progress": u32::MAX}})), BadRequest, vec!["continuation.limits.no_progress"]),
            (
                over(json!({"patterns": vec!["a"; 33]})),
                BadRequest,
                vec!["continuation.continuation_patterns", "33", "32"],
            ),
            (
                over(json!({"termination_patterns": ["a", "b ("]})),
                BadRequest,
                vec!["continuation.termination_patterns[1]", "unclosed group at its character 3"],
            ),
            (
                over(json!({"patterns": [r"(\w{1,1000}){1,1000}"]})),
                BadRequest,
                vec!["continuation.continuation_patterns[0]", "repeat less"],
            ),
            (over(json!({"patterns": [7]})), BadRequest, vec!["continuation", "string"]),
            // configure
            (refuse::<Configure>(json!({"session_id": "s"})), BadRequest, vec!["nothing to change", "`model`"]),
            (
                refuse::<Configure>(json!({"session_id": "s", "prompt": "e"})),
                BadRequest,
                vec!["prompt", "expected one of"],
            ),
            (refuse::<Configure>(json!({"session_id": "s", "model": ""})), BadRequest, vec!["`model`"]),
            (refuse::<Configure>(json!({"model": "m"})), BadRequest, vec!["`session_id`"]),
            (configure(json!({"timeout": 604_801})), BadRequest, vec!["continuation.timeout", "604800"]),
            (configure(json!({"patterns": ["["]})), BadRequest, vec!["continuation.continuation_patterns[0]"]),
            // send
            (refuse::<SendUserMessage>(json!({"text": "x"})), BadRequest, vec!["session_id"]),
            (refuse::<SendUserMessage>(json!({"session_id": "s"})), EmptyMessage, vec!["`text`"]),
            (
                refuse::<SendUserMessage>(json!({"session_id": "s", "text": "a", "content": "b"})),
                BadRequest,
                vec!["`text`", "`content`"],
            ),
            (
                refuse::<SendUserMessage>(json!({"session_id": "s", "text": "x", "mode": "shout"})),
                BadRequest,
                vec!["`mode`", "shout", "expected"],
            ),
            (send(json!("")), EmptyMessage, vec!["`content`"]),
            (send(json!([{"type": "text", "text": ""}])), EmptyMessage, vec!["`content`"]),
            (send(json!([{"type": "sound"}])), BadRequest, vec!["`content`", "list of parts"]),
            (send(json!(vec![part; 65])), TooLarge, vec!["`content`", "64"]),
            (
                send(json!([{"type": "image_url", "image_url": {"url": "gopher://x"}}])),
                BadRequest,
                vec!["`content`[0]"],
            ),
            // pause, resume, stop, clear
            (control(json!({"wait": 1})), BadRequest, vec!["`wait`"]),
            (control(json!({"no_wait": null})), BadRequest, vec!["`no_wait`"]),
            (control(json!({"reason": long(4_097)})), TooLarge, vec!["`reason`", "4097", "4096", "shorten"]),
            (control(json!({"reason": 7})), BadRequest, vec!["`reason`", "string"]),
            (control(json!({"why": "x"})), BadRequest, vec!["why"]),
            (refuse::<ControlReason>(json!({"session_id": 7})), BadRequest, vec!["session_id"]),
            (refuse::<ControlReason>(json!({"session_id": long(65)})), BadRequest, vec!["64"]),
            // answer
            (answer(json!({"decision": "maybe"})), BadRequest, vec!["`decision`", "maybe", "expected"]),
            (answer(json!({"arguments_sha256": "0"})), BadRequest, vec!["`arguments_sha256`", "64 hex digits"]),
            (answer(json!({"arguments_sha256": "A".repeat(64)})), BadRequest, vec!["`arguments_sha256`", "lower case"]),
            (answer(json!({"gate": "a b"})), BadRequest, vec!["`gate`"]),
            (answer(json!({"approved": true})), BadRequest, vec!["approved"]),
            (answer(json!({"arguments": {"a": nested(34)}})), BadRequest, vec!["`arguments`", "32"]),
            (answer(json!({"arguments": {"a": long(1 << 20)}})), TooLarge, vec!["`arguments`", "1048576"]),
            (answer(json!({"content": long(65_537)})), TooLarge, vec!["`content`", "65536"]),
            (answer(json!({"note": long(4_097)})), TooLarge, vec!["`note`", "4096"]),
        ]
    }

    #[test]
    fn wrong_command_is_refused_with_code_field_and_remedy() {
        let wrong: Vec<String> = refusals()
            .into_iter()
            .filter(|((code, message), wanted, parts)| {
                code != wanted || parts.iter().any(|part| !message.contains(part))
            })
            .map(|((code, message), wanted, parts)| format!("{code} {message:.300} is not {wanted} with {parts:?}"))
            .collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn largest_allowed_command_is_accepted() {
        let nested = (2..contract::limits::JSON_DEPTH_MAX).fold(json!([1]), |inner, _| json!([inner]));
        let names: Vec<String> = (0..contract::limits::FEATURES_MAX).map(|n| format!("n{n}")).collect();
        let params = json!({
            "prompt": "x".repeat(contract::limits::MESSAGE_BYTES_MAX),
            "messages": vec![json!({"role": "user", "content": "x"}); contract::limits::START_MESSAGES_MAX],
            "parameters": {"a": nested},
            "features": {"enable": names},
            "tools": (0..contract::limits::SESSION_TOOLS_MAX).map(|n| format!("t{n}")).collect::<Vec<_>>(),
            "continuation": {
                "max_iterations": 200, "timeout": 604_800, "continuation_patterns": vec!["a"; 32],
                "limits": {"tokens": 1_000_000_000_000_u64, "cost_usd": 1_000_000, "tool_calls": null, "repetition": 0},
            },
            "streaming": {"enabled": true, "chunk_ms": 10_000, "chunk_bytes": 1 << 20, "connect": 1, "idle": 3_600},
        });
        check_size("the frame", &params.to_string()).unwrap();
        accept::<Start>(params);
    }

    #[test]
    fn oversized_json_is_refused_before_parsing() {
        for (text, code, part) in [
            ("[".repeat(1 << 20), ErrorCode::BadRequest, "nested 1048576 levels deep, at most 40"),
            (format!("[{}0]", "0,".repeat(1 << 20)), ErrorCode::TooLarge, "at most 32768"),
            (format!("{{{}}}", r#""a":{},"#.repeat(90_000)), ErrorCode::TooLarge, "values and names"),
        ] {
            let error = check_size("the frame", &text).unwrap_err();
            assert_eq!(error.code, code);
            assert!(error.message.contains(part), "{}", error.message);
        }
    }

    #[test]
    fn send_with_text_or_content_gives_same_field() {
        let command = accept::<SendUserMessage>(json!({"session_id": "s", "text": "hi", "mode": "queue"}));
        assert_eq!((command.body.content, command.body.mode), (Content::from("hi"), MessageMode::Queue));
        let parts = json!({"session_id": "s", "content": [{"type": "text", "text": "hi"}]});
        accept::<SendUserMessage>(parts);
        assert_eq!(parse_word::<AnswerDecision>("decision", "deny").unwrap(), AnswerDecision::Deny);
    }
}
