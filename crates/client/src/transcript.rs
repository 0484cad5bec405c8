//! Transcript of a session as people read it, turn by turn.

use std::fmt;

use proto::Transcript;
use proto::json::to_value;
use serde::Deserialize;
use serde_json::Value;

use crate::error::ClientError;
use crate::event::TurnStopReason;

/// A part of the transcript: no system prompt, no envelopes, no signals.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct SessionTranscript {
    /// The turns, oldest first.
    pub turns: Vec<TranscriptTurn>,
    /// `after` of the next part, if there is one.
    pub next_after: Option<u32>,
    /// Whether parts of the session are gone, because the archive no longer has them.
    #[serde(default)]
    pub is_incomplete: bool,
}

/// A turn of a transcript.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct TranscriptTurn {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Time at which the turn began, as RFC 3339.
    pub started: String,
    /// Its messages in order.
    pub messages: Vec<TranscriptMessage>,
    /// Reason why the turn ended; none while it runs.
    pub stop_reason: Option<TurnStopReason>,
}

/// A message of a transcript.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct TranscriptMessage {
    /// Role of the author: `user` or `assistant`.
    pub role: String,
    /// Time of the message, as RFC 3339.
    pub time: String,
    /// Its text; the middle of a long one is left out.
    pub text: String,
    /// Number of its images.
    #[serde(default)]
    pub images: u32,
    /// Number of the step in its turn, of a reply.
    pub step: Option<u32>,
    /// The calls of a reply.
    #[serde(default)]
    pub tool_calls: Vec<TranscriptCall>,
}

/// A tool call of a transcript, with its result.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct TranscriptCall {
    /// Id of the call: unique in its session.
    pub id: String,
    /// Name of the tool.
    pub tool: String,
    /// The arguments, as the API gives them.
    pub arguments: Value,
    /// `ok`, `error`, `denied`, `timeout`, `cancelled` or `unknown`; none while it runs.
    pub outcome: Option<String>,
    /// Result that the model reads; the middle of a long one is left out.
    pub result: Option<String>,
}

impl TryFrom<Transcript> for SessionTranscript {
    type Error = ClientError;

    fn try_from(reply: Transcript) -> Result<Self, ClientError> {
        let unreadable =
            |error: &dyn fmt::Display| ClientError::internal(format!("the transcript cannot be read: {error}"));
        let value = to_value(&reply).map_err(|error| unreadable(&error))?;
        serde_json::from_value(value).map_err(|error| unreadable(&error))
    }
}
