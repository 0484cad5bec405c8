//! Reads a task from the commits of a log.

use std::collections::BTreeSet;

use contract::command::{MessageMode, Verb};
use contract::commit::Commit;
use contract::event::{Event, InputKind, SessionEnded, StopReason, TurnCompleted};
use contract::{CommandId, ErrorCode, Timestamp};
use edge_core::turn::{TurnOutcome, TurnPart};

use super::message;
use super::task::AgentTask;
use super::task_id::TaskId;

/// Reads one task, commit by commit, from that of its message on.
#[derive(Debug)]
pub(super) struct TaskReader {
    pub(super) task: AgentTask,
    message: Option<CommandId>,
    /// Whether a running turn reads the message, so that it may begin none.
    is_steering: bool,
    turn: Option<u32>,
    /// Answers to gates and calls, by the id of their command.
    pub(super) answers: BTreeSet<CommandId>,
    last_error: Option<(ErrorCode, String)>,
    /// The last `seq` that was read.
    pub(super) seq: u64,
}

impl TaskReader {
    pub(super) fn new(id: TaskId) -> Self {
        Self {
            task: AgentTask::new(id, Timestamp::default()),
            message: None,
            is_steering: false,
            turn: None,
            answers: BTreeSet::new(),
            last_error: None,
            seq: 0,
        }
    }

    /// Returns the message of the task; `None` if its slot has none, or if the message belongs to the turn of another one.
    pub(super) fn message(&self) -> Option<&CommandId> {
        self.message.as_ref().filter(|_| !self.is_steering || self.turn.is_some())
    }

    /// Whether the slot of the task has a message.
    pub(super) fn has_message(&self) -> bool {
        self.message.is_some()
    }

    pub(super) fn push(&mut self, slot: u64, commit: &Commit) {
        self.seq = commit.last_seq();
        for event in &commit.events {
            self.push_event(slot, commit.meta.time, event);
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "most events say nothing about a task")]
    fn push_event(&mut self, slot: u64, time: Timestamp, event: &Event) {
        match event {
            Event::UserProcessed(message) if slot == self.task.id.slot && self.message.is_none() => {
                self.message = Some(message.message_id.clone());
                self.is_steering = steers(message.mode);
                self.task.changed = time;
                self.task.remember(message::of_user(&self.task.id, message));
            }
            Event::UserProcessed(message) if self.turn.is_some() && steers(message.mode) => {
                self.task.remember(message::of_user(&self.task.id, message));
            }
            Event::TurnStarted(started) | Event::PrivateTurnStarted(started)
                if self.turn.is_none() && self.message.as_ref().is_some_and(|id| started.messages.contains(id)) =>
            {
                self.turn = Some(started.turn);
                self.task.is_started = true;
                self.task.changed = time;
            }
            Event::InputHandled(handled)
                if [Verb::Answer, Verb::AnswerToolCall].map(InputKind::Control).contains(&handled.input.kind) =>
            {
                self.answers.insert(handled.input.id.clone());
            }
            Event::Error(error) => self.last_error = Some((error.code.clone(), error.message.clone())),
            Event::SessionEnded(ended) if self.message.is_some() => self.push_part(end_of_session(ended), time),
            event if self.turn.is_some() => {
                if let Some(part) = self.part_of(event) {
                    self.push_part(part, time);
                }
            }
            _ => {}
        }
    }

    fn push_part(&mut self, part: TurnPart, time: Timestamp) {
        self.task.push(part, time);
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "most events are no parts of a turn")]
    fn part_of(&mut self, event: &Event) -> Option<TurnPart> {
        Some(match event {
            Event::AiFullReceived(reply) => TurnPart::ReplyEnd { step: reply.step, reply: reply.clone() },
            Event::GateOpened(gate) => TurnPart::GateOpened(Box::new(gate.clone())),
            Event::GateClosed(closed) => TurnPart::GateClosed(Box::new(closed.clone())),
            Event::ClientCallOpened(call) => TurnPart::ClientCall(Box::new(call.clone())),
            Event::ToolCallResult(result) => TurnPart::Result(Box::new(result.clone())),
            Event::TurnCompleted(completed) => {
                let TurnCompleted { turn, stop_reason, final_response, spent, .. } = completed.clone();
                let error = self.last_error.take().filter(|_| stop_reason == StopReason::Error);
                TurnPart::End(Box::new(TurnOutcome { turn, stop_reason, final_response, spent, error }))
            }
            _ => return None,
        })
    }
}

const fn steers(mode: MessageMode) -> bool {
    match mode {
        MessageMode::Steer | MessageMode::Interrupt => true,
        MessageMode::Queue => false,
    }
}

/// A session that ends in a turn, or before it.
fn end_of_session(ended: &SessionEnded) -> TurnPart {
    let stop_reason = ended.stop_reason.unwrap_or(StopReason::Stopped);
    let (final_response, spent) = (ended.final_response.clone(), ended.spent);
    TurnPart::End(Box::new(TurnOutcome { turn: 0, stop_reason, final_response, spent, error: None }))
}
