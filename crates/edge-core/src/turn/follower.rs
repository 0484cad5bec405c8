//! Turns the events of a session into the parts of a turn.

use std::collections::BTreeMap;

use contract::ErrorCode;
use contract::commit::OpenGate;
use contract::event::{
    AiFullReceived, ClientCallOpened, ErrorEvent, GateClosed, GateOpened, SessionEnded, StopReason, ToolCallIdentified,
    ToolCallResult, Topic, TurnCompleted,
};
use contract::model::{Channel, Chunk, ReplyText};
use contract::spent::Spent;
use serde::de::DeserializeOwned;

use crate::api_error::ApiError;
use crate::feed::viewer_event::{EventRole, ViewerEvent};

/// A part of a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnPart {
    /// Text of the reply of a step.
    Text {
        /// Number of the step.
        step: u32,
        /// Piece that is new.
        delta: String,
    },
    /// Reasoning of the model in a step, where its provider shows it.
    Reasoning {
        /// Number of the step.
        step: u32,
        /// Piece that is new.
        delta: String,
    },
    /// The reply of a step is complete.
    ReplyEnd {
        /// Number of the step.
        step: u32,
        /// Reply as a whole.
        reply: Box<AiFullReceived>,
    },
    /// A tool is called.
    Call(Box<ToolCallIdentified>),
    /// The result of a call.
    Result(Box<ToolCallResult>),
    /// A call waits for the client.
    ClientCall(Box<ClientCallOpened>),
    /// A person is asked.
    GateOpened(Box<GateOpened>),
    /// A person answered, or nobody did in time.
    GateClosed(Box<GateClosed>),
    /// The turn ended; nothing follows.
    End(Box<TurnOutcome>),
}

/// Result of a turn that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnOutcome {
    /// Number of the turn.
    pub turn: u32,
    /// Reason of its end.
    pub stop_reason: StopReason,
    /// Last answer of the turn.
    pub final_response: String,
    /// Tokens and costs, with those of child sessions.
    pub spent: Spent,
    /// Last error, if the turn could not go on.
    pub error: Option<(ErrorCode, String)>,
}

impl TurnOutcome {
    /// Returns the error of a turn that has no answer. A turn that a limit or a person ended has what it wrote so far;
    /// `has_text` says whether that is something.
    pub fn failure(&self, has_text: bool) -> Option<ApiError> {
        if self.stop_reason == StopReason::Error {
            let (code, message) = self.error.clone().unwrap_or((ErrorCode::Internal, "the turn failed".to_owned()));
            return Some(ApiError::new(code, message));
        }
        let is_stopped = self.stop_reason == StopReason::Stopped && !has_text;
        is_stopped.then(|| ApiError::new(ErrorCode::SessionEnded, "the session was stopped before it answered"))
    }
}

/// Follows one turn, from the events after its message on.
#[derive(Debug, Default)]
pub struct TurnFollower {
    /// The replies of the turn by step.
    replies: BTreeMap<u32, StepReply>,
    last_error: Option<(ErrorCode, String)>,
    is_over: bool,
}

#[derive(Debug, Default)]
struct StepReply {
    text: ReplyText,
    reasoning: ReplyText,
}

impl TurnFollower {
    /// Takes the next event, and returns the parts that follow from it. Events after the end of the turn have none.
    #[allow(clippy::wildcard_enum_match_arm, reason = "a reader names the topics that it reads")]
    pub fn push(&mut self, event: &ViewerEvent) -> Vec<TurnPart> {
        let mut parts = Vec::new();
        if self.is_over {
            return parts;
        }
        match event.topic {
            Topic::AiChunkReceived => {
                if let (EventRole::Chunk(position), Some(chunk)) = (event.role, read::<Chunk>(event)) {
                    self.push_chunk(position.attempt, &chunk, &mut parts);
                }
            }
            Topic::AiFullReceived => {
                if let Some(reply) = read::<AiFullReceived>(event) {
                    self.push_reply(reply, &mut parts);
                }
            }
            Topic::ToolCallIdentified => parts.extend(read(event).map(|call| TurnPart::Call(Box::new(call)))),
            Topic::ToolCallResult => parts.extend(read(event).map(|result| TurnPart::Result(Box::new(result)))),
            Topic::GateOpened => parts.extend(read(event).map(|gate| TurnPart::GateOpened(Box::new(gate)))),
            Topic::GateClosed => parts.extend(read(event).map(|gate| TurnPart::GateClosed(Box::new(gate)))),
            Topic::Error => {
                let error = read::<ErrorEvent>(event);
                self.last_error = error.map(|error| (error.code, error.message)).or(self.last_error.take());
            }
            Topic::TurnCompleted => {
                if let Some(completed) = read::<TurnCompleted>(event) {
                    let TurnCompleted { turn, stop_reason, final_response, spent, .. } = completed;
                    self.end(TurnOutcome { turn, stop_reason, final_response, spent, error: None }, &mut parts);
                }
            }
            // A session that ends in a turn, or before its first one.
            Topic::SessionEnded => {
                let ended = read::<SessionEnded>(event);
                let (stop_reason, final_response, spent) = match ended {
                    Some(ended) => (ended.stop_reason, ended.final_response, ended.spent),
                    None => (None, String::new(), Spent::default()),
                };
                let stop_reason = stop_reason.unwrap_or(StopReason::Stopped);
                self.end(TurnOutcome { turn: 0, stop_reason, final_response, spent, error: None }, &mut parts);
            }
            Topic::ToolCallWaiting => parts.extend(read(event).map(|call| TurnPart::ClientCall(Box::new(call)))),
            _ => {}
        }
        parts
    }

    fn push_chunk(&mut self, attempt: (u32, u32), chunk: &Chunk, parts: &mut Vec<TurnPart>) {
        let step = chunk.step;
        let reply = self.replies.entry(step).or_default();
        match chunk.channel {
            Channel::Text => {
                let delta = reply.text.push(attempt, &chunk.delta);
                parts.extend((!delta.is_empty()).then_some(TurnPart::Text { step, delta }));
            }
            Channel::Reasoning => {
                let delta = reply.reasoning.push(attempt, &chunk.delta);
                parts.extend((!delta.is_empty()).then_some(TurnPart::Reasoning { step, delta }));
            }
        }
    }

    fn push_reply(&mut self, reply: AiFullReceived, parts: &mut Vec<TurnPart>) {
        let step = reply.step;
        let mut before = self.replies.remove(&step).unwrap_or_default();
        // Reasoning that comes after text cannot stand before it any more.
        if !before.text.is_begun() {
            let delta = before.reasoning.finish(&reply.reasoning);
            parts.extend((!delta.is_empty()).then_some(TurnPart::Reasoning { step, delta }));
        }
        let delta = before.text.finish(&reply.text);
        parts.extend((!delta.is_empty()).then_some(TurnPart::Text { step, delta }));
        parts.push(TurnPart::ReplyEnd { step, reply: Box::new(reply) });
    }

    fn end(&mut self, mut end: TurnOutcome, parts: &mut Vec<TurnPart>) {
        self.is_over = true;
        end.error = self.last_error.take().filter(|_| end.stop_reason == StopReason::Error);
        parts.push(TurnPart::End(Box::new(end)));
    }
}

/// Returns the gate that an event opened as a session has it.
pub fn open_gate(opened: GateOpened) -> OpenGate {
    let GateOpened { gate, kind, arguments_sha256, expires, tool, arguments, on_expiry: _ } = opened;
    let arguments = arguments.map(|arguments| arguments.get().to_owned()).unwrap_or_default();
    OpenGate { gate, kind, tool, arguments, shortened: false, arguments_sha256, expires }
}

fn read<T: DeserializeOwned>(event: &ViewerEvent) -> Option<T> {
    serde_json::from_str(event.envelope.data.get()).ok()
}
