//! Events of a session as updates for the client, and what else follows from them. Pure.

use std::collections::BTreeSet;

use contract::ErrorCode;
use contract::command::AnswerDecision;
use contract::event::{
    AiFullReceived, ContinuationProgress, Event, GateClosed, GateKind, GateOpened, SessionStarted, StatusChanged,
    StopReason, UserProcessed,
};
use contract::model::Message;
use contract::settings::{AgentSettings, ModelSettings};
use session_view::notification::{NotificationContent, ParsedNotification};
use session_view::spend_sum::SpendSum;

use super::gate::call_fields;
use super::reply_chunks::ReplyChunks;
use super::tool_call::{call_updates, progress_update, result_update, status_update, unknown_call_update};
use super::update::{Block, CallStatus, Cost, PlanEntry, SessionUpdate, blocks_of};

/// Result of translating an event of a session.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Translation {
    Update(SessionUpdate),
    /// The session accepted this message.
    Message {
        id: String,
    },
    /// A person is asked.
    GateOpened(Box<GateOpened>),
    /// The gate of this id has its answer.
    GateClosed {
        gate: String,
    },
    TurnEnded(TurnResult),
    SessionEnded,
    /// Agent or model may be others now.
    Configured,
}

/// Result of a turn that ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TurnResult {
    pub(super) stop_reason: StopReason,
    /// Last error of the turn, if it could not go on.
    pub(super) error: Option<(ErrorCode, String)>,
}

/// Follows the events of one session.
#[derive(Debug, Default)]
pub(super) struct Translator {
    replies: ReplyChunks,
    /// The message of this editor that the client shows already.
    own_message: Option<String>,
    open_gates: Vec<GateOpened>,
    /// Calls without a result.
    calls: BTreeSet<String>,
    paused: Option<StatusChanged>,
    agent: String,
    model: String,
    context_window: Option<u64>,
    spent: SpendSum,
    plan: Vec<PlanEntry>,
    last_error: Option<(ErrorCode, String)>,
    is_turn_running: bool,
}

impl Translator {
    /// Sets the id of a message that this editor sends, so that it is not shown again.
    pub(super) fn set_own_message(&mut self, id: &str) {
        self.own_message = Some(id.to_owned());
    }

    /// Drops the text of the reply that runs, after the person cancelled it.
    pub(super) fn mute(&mut self) {
        self.replies.mute();
    }

    /// Prepares for the reply so far, which comes again after a lost connection.
    pub(super) fn restart_reply(&mut self) {
        self.replies.restart();
    }

    /// Returns the gates that wait for a person.
    pub(super) fn open_gates(&self) -> &[GateOpened] {
        &self.open_gates
    }

    /// Returns who paused the session and why, if it is paused.
    pub(super) fn paused(&self) -> Option<&StatusChanged> {
        self.paused.as_ref()
    }

    /// Returns agent and model of the session, as far as they are known.
    pub(super) fn settings(&self) -> (&str, &str) {
        (&self.agent, &self.model)
    }

    /// Whether a message came after the end of the last turn.
    pub(super) fn is_turn_running(&self) -> bool {
        self.is_turn_running
    }

    /// Translates a notification of the session.
    pub(super) fn translate(&mut self, notification: &ParsedNotification) -> Vec<Translation> {
        match &notification.content {
            NotificationContent::Event(event) => self.translate_event(event, notification.seq),
            NotificationContent::Chunk(chunk) => {
                self.replies.push_chunk(chunk).map(Translation::Update).into_iter().collect()
            }
            NotificationContent::Progress(progress) => vec![Translation::Update(progress_update(progress))],
            NotificationContent::Other => Vec::new(),
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "a reader names the events that it reads")]
    fn translate_event(&mut self, event: &Event, seq: Option<u64>) -> Vec<Translation> {
        self.spent.update(event);
        match event {
            Event::SessionStarted(started) => self.start(started),
            Event::UserProcessed(message) => self.user_message(message),
            Event::AiFullReceived(full) => self.reply(full),
            Event::ToolCallIdentified(call) => {
                self.replies.close_block();
                self.calls.insert(call.call.to_string());
                call_updates(call).into_iter().map(Translation::Update).collect()
            }
            Event::ClientCallOpened(call) => {
                vec![Translation::Update(status_update(call.call.as_str(), CallStatus::InProgress))]
            }
            Event::ToolCallResult(result) => {
                self.replies.close_block();
                // A call of a tool that does not exist has a result only.
                let is_known = self.calls.remove(result.call.as_str());
                let unknown = (!is_known).then(|| Translation::Update(unknown_call_update(result)));
                unknown.into_iter().chain([Translation::Update(result_update(result))]).collect()
            }
            Event::ContinuationProgress(progress) => self.plan(progress).into_iter().collect(),
            Event::GateOpened(gate) => self.open_gate(gate),
            Event::GateClosed(closed) => self.close_gate(closed),
            Event::StatusPaused(status) => {
                self.paused = Some(status.clone());
                Vec::new()
            }
            Event::StatusResumed(_) => {
                self.paused = None;
                Vec::new()
            }
            Event::Configured(configured) => {
                self.set_settings(&configured.agent, &configured.model);
                vec![Translation::Configured]
            }
            Event::TurnCompleted(turn) => {
                self.is_turn_running = false;
                let error = self.last_error.take().filter(|_| turn.stop_reason == StopReason::Error);
                let answer = self.replies.end_turn(turn.turn, &turn.final_response).map(Translation::Update);
                // A reply that the person cancelled ends with its turn.
                self.replies.unmute();
                let ended = Translation::TurnEnded(TurnResult { stop_reason: turn.stop_reason, error });
                answer.into_iter().chain([ended]).collect()
            }
            Event::SessionEnded(_) => {
                self.is_turn_running = false;
                vec![Translation::SessionEnded]
            }
            // An error without a seq is about an attempt; the model call goes on.
            Event::Error(error) => {
                if seq.is_some() {
                    self.last_error = Some((error.code.clone(), error.message.clone()));
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn set_settings(&mut self, agent: &AgentSettings, model: &ModelSettings) {
        agent.id.as_str().clone_into(&mut self.agent);
        self.model.clone_from(&model.id);
        self.context_window = model.context_window;
    }

    /// A session may begin with the messages of another conversation.
    fn start(&mut self, started: &SessionStarted) -> Vec<Translation> {
        self.set_settings(&started.agent, &started.model);
        let history = started.messages.iter().enumerate().flat_map(|(index, message)| {
            let message_id = format!("history-{index}");
            match message {
                Message::User { content } => blocks_of(content)
                    .into_iter()
                    .map(|content| SessionUpdate::UserMessageChunk { content, message_id: message_id.clone() })
                    .collect(),
                Message::Assistant { content, .. } if !content.is_empty() => {
                    vec![SessionUpdate::AgentMessageChunk { content: Block::text(content), message_id }]
                }
                Message::Assistant { .. } | Message::System { .. } | Message::Tool { .. } => Vec::new(),
            }
        });
        history.map(Translation::Update).chain([Translation::Configured]).collect()
    }

    fn user_message(&mut self, message: &UserProcessed) -> Vec<Translation> {
        self.is_turn_running = true;
        let id = message.message_id.to_string();
        self.replies.close_block();
        let is_own = self.own_message.as_ref() == Some(&id);
        let blocks = if is_own { Vec::new() } else { blocks_of(&message.content) };
        let shown =
            blocks.into_iter().map(|content| SessionUpdate::UserMessageChunk { content, message_id: id.clone() });
        let shown: Vec<Translation> = shown.map(Translation::Update).collect();
        shown.into_iter().chain([Translation::Message { id }]).collect()
    }

    fn reply(&mut self, full: &AiFullReceived) -> Vec<Translation> {
        let mut updates = self.replies.complete(full);
        if let Some(size) = self.context_window {
            let cost = Cost { amount: self.spent.total().cost_usd, currency: "USD" };
            updates.push(SessionUpdate::UsageUpdate { used: full.spent.usage.total(), size, cost });
        }
        updates.into_iter().map(Translation::Update).collect()
    }

    /// Makes the plan of the steps that the model reports, when it has changed.
    fn plan(&mut self, progress: &ContinuationProgress) -> Option<Translation> {
        let entry = |status| move |text: &String| PlanEntry { content: text.clone(), priority: "medium", status };
        let progress = &progress.progress;
        let done = progress.steps_completed.iter().map(entry("completed"));
        let next = progress.steps_remaining.iter().take(1).map(entry("in_progress"));
        let later = progress.steps_remaining.iter().skip(1).map(entry("pending"));
        let entries: Vec<PlanEntry> = done.chain(next).chain(later).collect();
        if entries.is_empty() || entries == self.plan {
            return None;
        }
        self.plan.clone_from(&entries);
        self.replies.close_block();
        Some(Translation::Update(SessionUpdate::Plan { entries }))
    }

    fn open_gate(&mut self, gate: &GateOpened) -> Vec<Translation> {
        self.open_gates.push(gate.clone());
        self.replies.close_block();
        let call = is_about_no_call(gate).then(|| Translation::Update(SessionUpdate::ToolCall(call_fields(gate))));
        call.into_iter().chain([Translation::GateOpened(Box::new(gate.clone()))]).collect()
    }

    fn close_gate(&mut self, closed: &GateClosed) -> Vec<Translation> {
        let gate = closed.gate.to_string();
        let index = self.open_gates.iter().position(|open| open.gate == closed.gate);
        let Some(open) = index.map(|index| self.open_gates.remove(index)) else { return Vec::new() };
        let status = match (closed.decision, is_about_no_call(&open)) {
            (AnswerDecision::Approve | AnswerDecision::Answer, true) => Some(CallStatus::Completed),
            (AnswerDecision::Approve | AnswerDecision::Answer, false) => Some(CallStatus::InProgress),
            (AnswerDecision::Deny, true) => Some(CallStatus::Failed),
            // The result of the call says it.
            (AnswerDecision::Deny, false) => None,
        };
        let update = status.map(|status| Translation::Update(status_update(&gate, status)));
        update.into_iter().chain([Translation::GateClosed { gate }]).collect()
    }
}

/// Whether a gate is shown as a call of its own.
fn is_about_no_call(gate: &GateOpened) -> bool {
    matches!(gate.kind, GateKind::Limit(_) | GateKind::Error(_))
}

#[cfg(test)]
mod tests;
