//! Ids of responses, conversations and items. They name session and place, so that any replica finds them in the log.

use std::fmt;

use contract::commit::Commit;
use contract::event::Event;
use contract::{CallId, CommandId, SessionId};
use edge_core::api_error::ApiError;
use edge_core::turn::{BegunTurn, TurnStart};

use crate::errors::unknown;

const RESPONSE_PREFIX: &str = "resp_";
const CONVERSATION_PREFIX: &str = "conv_";
const APPROVAL_PREFIX: &str = "mcpr_";
const MESSAGE_PREFIX: &str = "msg_";
const REASONING_PREFIX: &str = "rs_";
const FUNCTION_CALL_PREFIX: &str = "fc_";
const FLEET_CALL_PREFIX: &str = "mcp_";
/// Begins the ids of sessions that are conversations.
const CONVERSATION_SESSION_PREFIX: &str = "conv-";

/// The id of a response: a part of a turn, from the commit that began or continued it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ResponseId {
    pub(super) session: SessionId,
    /// The slot of the commit.
    pub(super) slot: u64,
    /// Set for a message that waits for its turn: its number among the messages of the commit, from 0.
    pub(super) waiting: Option<usize>,
}

impl fmt::Display for ResponseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{RESPONSE_PREFIX}{}_{}", self.session, self.slot)?;
        self.waiting.map_or(Ok(()), |number| write!(f, "w{number}"))
    }
}

impl ResponseId {
    /// Parses an id. One that this server has not made is as unknown as one of a session that is not there.
    pub(super) fn parse(text: &str) -> Result<Self, ApiError> {
        Self::read(text).ok_or_else(|| unknown("response", text))
    }

    fn read(text: &str) -> Option<Self> {
        let (session, place) = text.strip_prefix(RESPONSE_PREFIX)?.rsplit_once('_')?;
        let (slot, waiting) = match place.split_once('w') {
            Some((slot, number)) => (slot, Some(number.parse().ok()?)),
            None => (place, None),
        };
        Some(Self { session: SessionId::new(session).ok()?, slot: slot.parse().ok()?, waiting })
    }

    /// Returns the id of the response to a request whose turn has begun, or will begin.
    pub(super) fn of(begun: &BegunTurn, commit: Option<&Commit>) -> Self {
        let waiting = match &begun.start {
            TurnStart::Running => None,
            TurnStart::Waiting { message } => {
                commit.map(|commit| messages_of(commit).position(|id| id == message).unwrap_or_default())
            }
        };
        Self { session: begun.session_id.clone(), slot: begun.slot, waiting }
    }

    /// Finds the turn of the response from its commit; `None` if nothing began there.
    pub(super) fn begun(&self, commit: &Commit) -> Option<BegunTurn> {
        let start = match self.waiting {
            Some(number) => TurnStart::Waiting { message: messages_of(commit).nth(number)?.clone() },
            None => commit.events.iter().any(begins_or_continues).then_some(TurnStart::Running)?,
        };
        Some(BegunTurn { session_id: self.session.clone(), slot: self.slot, seq: commit.last_seq(), start })
    }

    /// Returns the id of a message of the response.
    pub(super) fn message(&self, index: usize) -> String {
        format!("{MESSAGE_PREFIX}{}_{}_{index}", self.session, self.slot)
    }

    /// Returns the id of the reasoning of the response.
    pub(super) fn reasoning(&self, index: usize) -> String {
        format!("{REASONING_PREFIX}{}_{}_{index}", self.session, self.slot)
    }
}

fn messages_of(commit: &Commit) -> impl Iterator<Item = &CommandId> {
    commit.events.iter().filter_map(|event| {
        let Event::UserProcessed(message) = event else { return None };
        Some(&message.message_id)
    })
}

/// Whether a request of a client is behind an event, after which a turn goes on.
fn begins_or_continues(event: &Event) -> bool {
    event.turn_started().is_some() || matches!(event, Event::GateClosed(_) | Event::ToolCallResult(_))
}

/// Makes the id of a conversation from random text.
pub(super) fn new_conversation(random: &str) -> String {
    let hex: String = random.chars().filter(char::is_ascii_hexdigit).take(32).collect();
    format!("{CONVERSATION_PREFIX}{hex}")
}

/// Returns the session with which a conversation begins.
pub(super) fn session_of_conversation(conversation: &str) -> Result<SessionId, ApiError> {
    let random = conversation.strip_prefix(CONVERSATION_PREFIX).filter(|random| {
        random.len() == 32 && random.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    });
    random
        .and_then(|random| SessionId::new(&format!("{CONVERSATION_SESSION_PREFIX}{random}")).ok())
        .ok_or_else(|| unknown("conversation", conversation))
}

/// Returns the conversation of a session, if it is one.
pub(super) fn conversation_of(session: &SessionId) -> Option<String> {
    let rest = session.as_str().strip_prefix(CONVERSATION_SESSION_PREFIX)?;
    Some(format!("{CONVERSATION_PREFIX}{}", rest.split('-').next()?))
}

/// An item of a response, as its id names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ItemId {
    /// A message of the response that began at this slot.
    Message { session: SessionId, slot: u64 },
    /// A call of the client, or of the fleet.
    Call { session: SessionId, call: CallId },
    /// An item that histories leave out.
    LeftOut,
}

impl ItemId {
    /// Parses an id that this server has made.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if [REASONING_PREFIX, APPROVAL_PREFIX].iter().any(|prefix| text.starts_with(prefix)) {
            return Some(Self::LeftOut);
        }
        if let Some(rest) = text.strip_prefix(MESSAGE_PREFIX) {
            let (rest, _) = rest.rsplit_once('_')?;
            let (session, slot) = rest.rsplit_once('_')?;
            return Some(Self::Message { session: SessionId::new(session).ok()?, slot: slot.parse().ok()? });
        }
        let rest = [FUNCTION_CALL_PREFIX, FLEET_CALL_PREFIX].iter().find_map(|prefix| text.strip_prefix(prefix))?;
        let (session, call) = rest.rsplit_once('_')?;
        Some(Self::Call { session: SessionId::new(session).ok()?, call: CallId::new(call).ok()? })
    }
}

/// Returns the id of an item that is a call of the client.
pub(super) fn function_call(session: &SessionId, call: &CallId) -> String {
    format!("{FUNCTION_CALL_PREFIX}{session}_{call}")
}

/// Returns the id of an item that is a call of the fleet.
pub(super) fn fleet_call(session: &SessionId, call: &CallId) -> String {
    format!("{FLEET_CALL_PREFIX}{session}_{call}")
}

/// Returns the id of an item that asks for an approval.
pub(super) fn approval(session: &SessionId, gate: &CallId) -> String {
    format!("{APPROVAL_PREFIX}{session}_{gate}")
}

/// Parses the id of an item that asks for an approval.
pub(super) fn parse_approval(text: &str) -> Result<(SessionId, CallId), ApiError> {
    let read = || {
        let (session, gate) = text.strip_prefix(APPROVAL_PREFIX)?.rsplit_once('_')?;
        Some((SessionId::new(session).ok()?, CallId::new(gate).ok()?))
    };
    read().ok_or_else(|| unknown("request for approval", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_id_is_the_same() {
        for text in ["resp_chat-1_a_7", "resp_s_0w2"] {
            assert_eq!(ResponseId::parse(text).unwrap().to_string(), text);
        }
        for text in ["resp_s", "resp_s_x", "resp_s_1w", "s_1", "resp_a.b_1", ""] {
            assert!(ResponseId::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn conversation_and_its_later_sessions_have_one_id() {
        let conversation = new_conversation("0123456789abcdef-0123456789abcdef");
        let session = session_of_conversation(&conversation).unwrap();
        assert_eq!(conversation_of(&session).as_deref(), Some(conversation.as_str()));
        let later = SessionId::new(&format!("{session}-3")).unwrap();
        assert_eq!(conversation_of(&later).as_deref(), Some(conversation.as_str()));
        assert!(session_of_conversation("conv_1").is_err());
        assert_eq!(conversation_of(&SessionId::new("chat-1").unwrap()), None);
    }

    #[test]
    fn item_is_found_by_its_id() {
        let (session, call) = (SessionId::new("chat-a_b").unwrap(), CallId::new("c1-2-1").unwrap());
        let response = ResponseId { session: session.clone(), slot: 7, waiting: None };
        let message = ItemId::Message { session: session.clone(), slot: 7 };
        assert_eq!(ItemId::parse(&response.message(12)), Some(message));
        assert_eq!(ItemId::parse(&response.reasoning(1)), Some(ItemId::LeftOut));
        for id in [function_call(&session, &call), fleet_call(&session, &call)] {
            let found = ItemId::Call { session: session.clone(), call: call.clone() };
            assert_eq!(ItemId::parse(&id), Some(found), "{id}");
        }
        for id in ["msg_1", "msg_a_x_1", "fc_1", "ws_a_b", ""] {
            assert_eq!(ItemId::parse(id), None, "{id}");
        }
    }

    #[test]
    fn approval_names_session_and_gate() {
        let (session, gate) = (SessionId::new("a_b").unwrap(), CallId::new("c1-2-1").unwrap());
        assert_eq!(parse_approval(&approval(&session, &gate)).unwrap(), (session, gate));
        assert!(parse_approval("mcpr_x").is_err());
    }
}
