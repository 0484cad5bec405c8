//! A session as people read it: messages and calls, turn by turn, without signals and nudges.

use std::collections::BTreeMap;

use contract::Timestamp;
use contract::command::{AnswerDecision, MessageMode};
use contract::commit::Commit;
use contract::event::{AiCutReceived, AiFullReceived, Event, StopReason, ToolCallResult};
use contract::ids::{CallId, CommandId};
use contract::limits::{READABLE_RESULT_BYTES_MAX, READABLE_TEXT_BYTES_MAX};
use contract::model::FinishReason;
use contract::tool::Outcome;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::shorten::shorten;

/// One turn of a session, for readers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReadableTurn {
    /// Number of the turn, from 1.
    pub turn: u32,
    /// Time at which the turn began.
    pub started: Timestamp,
    /// Messages of the turn, in order.
    pub messages: Vec<ReadableMessage>,
    /// Reason why the turn ended; none while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
}

/// One message of a turn, for readers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum ReadableMessage {
    /// A message of the user.
    User {
        /// Time at which the loop accepted the message.
        time: Timestamp,
        /// Its text; the middle of a long one is left out.
        text: String,
        /// Number of images in the message.
        #[serde(default)]
        images: usize,
    },
    /// A reply of the model.
    Assistant {
        /// Time at which the reply was complete.
        time: Timestamp,
        /// Number of the step in its turn, from 1.
        step: u32,
        /// Text of the reply for people; empty if the reply only calls tools.
        text: String,
        /// Whether it was cut off: the text is what had come.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        cut: bool,
        /// Tool calls that the reply made.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ReadableCall>,
    },
}

/// A tool call, with what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReadableCall {
    /// Id of the call: unique in its session.
    pub id: String,
    /// The tool, as the model wrote it.
    pub tool: String,
    /// As the model wrote them; as a person changed them, where one did.
    pub arguments: String,
    /// Decision of a person, where one was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<AnswerDecision>,
    /// Person that answered the gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// None while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Result that the model read; the middle of a long one is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
}

/// Every turn of a log.
pub fn turns<'a>(commits: impl IntoIterator<Item = &'a Commit>) -> Vec<ReadableTurn> {
    let mut reader = Reader::default();
    for commit in commits {
        for event in &commit.events {
            reader.event(commit.meta.time, event);
        }
    }
    reader.turns
}

#[derive(Default)]
struct Reader {
    turns: Vec<ReadableTurn>,
    /// Messages without a place: in which order they came, and whether they go into the running turn.
    waiting: Vec<(CommandId, bool, ReadableMessage)>,
    /// Whether the running turn is at its last step, which messages do not reach.
    is_last_step: bool,
    /// Position of each call by its id: indices of its turn, its message and the call in the message.
    calls: BTreeMap<String, (usize, usize, usize)>,
}

impl Reader {
    #[allow(clippy::wildcard_enum_match_arm, reason = "most events are not for people")]
    fn event(&mut self, time: Timestamp, event: &Event) {
        match event {
            Event::UserProcessed(message) => {
                let steers = matches!(message.mode, MessageMode::Steer | MessageMode::Interrupt);
                let (text, images) =
                    (shortened(&message.content.text(), READABLE_TEXT_BYTES_MAX), message.content.images());
                let user_message = ReadableMessage::User { time, text, images };
                self.waiting.push((message.message_id.clone(), steers, user_message));
            }
            Event::TurnStarted(started) | Event::PrivateTurnStarted(started) => {
                self.is_last_step = false;
                let turn = ReadableTurn { turn: started.turn, started: time, messages: Vec::new(), stop_reason: None };
                self.turns.push(turn);
                self.place(|id, _| started.messages.contains(id));
            }
            Event::LimitReached(_) => self.is_last_step = true,
            Event::ModelCallOpened(opened) if opened.attempt == 1 && !self.is_last_step => {
                self.place(|_, steers| steers);
            }
            Event::AiFullReceived(reply) => self.reply(time, reply),
            Event::AiCutReceived(cut) => self.cut_reply(time, cut),
            Event::GateClosed(closed) => {
                if let Some(call) = self.call(&closed.gate) {
                    call.decision = Some(closed.decision);
                    call.by.clone_from(&closed.by);
                    if let Some(changed) = &closed.arguments {
                        call.arguments = shortened(changed.get(), READABLE_RESULT_BYTES_MAX);
                    }
                }
            }
            Event::ToolCallResult(result) => self.result(result),
            Event::TurnCompleted(completed) => {
                if let Some(turn) = self.turns.last_mut() {
                    turn.stop_reason = Some(completed.stop_reason);
                }
            }
            _ => {}
        }
    }

    fn place(&mut self, is_for_it: impl Fn(&CommandId, bool) -> bool) {
        let Some(turn) = self.turns.last_mut() else { return };
        let (placed, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|(id, steers, _)| is_for_it(id, *steers));
        self.waiting = waiting;
        turn.messages.extend(placed.into_iter().map(|(_, _, user_message)| user_message));
    }

    fn reply(&mut self, time: Timestamp, reply: &AiFullReceived) {
        let place = self.turns.len().saturating_sub(1);
        let Some(turn) = self.turns.last_mut() else { return };
        let real = reply.tool_calls.iter().filter(|call| !call.is_signal());
        let tool_calls: Vec<ReadableCall> = real
            .map(|call| ReadableCall {
                id: call.id.clone(),
                tool: call.function.name.clone(),
                arguments: shortened(&call.function.arguments, READABLE_RESULT_BYTES_MAX),
                decision: None,
                by: None,
                outcome: None,
                result: None,
            })
            .collect();
        if tool_calls.is_empty() && reply.text.trim().is_empty() {
            return;
        }
        for (number, call) in tool_calls.iter().enumerate() {
            self.calls.insert(call.id.clone(), (place, turn.messages.len(), number));
        }
        turn.messages.push(ReadableMessage::Assistant {
            time,
            step: reply.step,
            text: shortened(&reply.text, READABLE_TEXT_BYTES_MAX),
            cut: reply.finish_reason == FinishReason::Cancelled,
            tool_calls,
        });
    }

    /// Puts what had come of a reply behind the steps before it: its turn may be over, or one step further.
    fn cut_reply(&mut self, time: Timestamp, cut: &AiCutReceived) {
        let Some(place) = self.turns.iter().rposition(|turn| turn.turn == cut.turn) else { return };
        if cut.text.trim().is_empty() {
            return;
        }
        let messages = &mut self.turns[place].messages;
        let is_later =
            |message: &ReadableMessage| matches!(message, ReadableMessage::Assistant { step, .. } if *step > cut.step);
        let at = messages.iter().position(is_later).unwrap_or(messages.len());
        let text = shortened(&cut.text, READABLE_TEXT_BYTES_MAX);
        let message = ReadableMessage::Assistant { time, step: cut.step, text, cut: true, tool_calls: Vec::new() };
        messages.insert(at, message);
        for (turn, message, _) in self.calls.values_mut() {
            *message += usize::from(*turn == place && *message >= at);
        }
    }

    fn result(&mut self, result: &ToolCallResult) {
        if let Some(call) = self.call(&result.call) {
            call.outcome = Some(result.outcome);
            call.result = Some(shortened(&result.content, READABLE_RESULT_BYTES_MAX));
        }
    }

    fn call(&mut self, id: &CallId) -> Option<&mut ReadableCall> {
        let (turn, message, number) = *self.calls.get(id.as_str())?;
        match self.turns.get_mut(turn)?.messages.get_mut(message)? {
            ReadableMessage::Assistant { tool_calls, .. } => tool_calls.get_mut(number),
            ReadableMessage::User { .. } => None,
        }
    }
}

/// A text of which the middle is left out where it has more than so many bytes.
pub fn shortened(text: &str, bytes: usize) -> String {
    shorten(text, bytes).unwrap_or_else(|| text.to_owned())
}
