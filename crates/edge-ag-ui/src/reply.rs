//! The events of a run, from the parts of its turn.

use std::collections::BTreeMap;

use contract::client_tool::Performer;
use contract::event::{AiFullReceived, StopKind, ToolCallResult};
use contract::tool::Outcome;
use contract::{CallId, ErrorCode, SessionId};
use edge_core::api_error::ApiError;
use edge_core::turn::{TurnOutcome, TurnPart, call_id, open_gate};
use serde_json::json;

use super::events::{RunOutcome, RunResult, TOOL, UiEvent};
use super::input::RESULT_PREFIX;
use super::interrupt::Interrupt;
use super::names::RunNames;
use super::snapshot::ThreadSnapshot;
use super::step::{StepMessages, split};
use super::usage::RunUsage;

/// Name of the event that says which session runs.
const SESSION_EVENT: &str = "ailoop.session";

/// Gates and calls that wait for somebody outside of the fleet.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) gates: BTreeMap<CallId, Interrupt>,
    /// Calls for the client, in the order in which they began to wait.
    pub(super) client_calls: Vec<CallId>,
}

/// A run on its way to its client.
#[derive(Debug)]
pub(super) struct RunReply {
    names: RunNames,
    session: SessionId,
    /// Number of the first event, which makes ids of messages unique in the session.
    seq: u64,
    snapshot: ThreadSnapshot,
    step: Option<StepMessages>,
    waiting: Waiting,
    /// Calls of the turn without a result.
    open_calls: Vec<CallId>,
    /// Calls whose results the client has brought itself.
    answered: Vec<CallId>,
    usage: RunUsage,
    is_over: bool,
}

impl RunReply {
    pub(super) fn new(names: RunNames, session: SessionId, seq: u64, snapshot: ThreadSnapshot) -> Self {
        Self {
            names,
            session,
            seq,
            snapshot,
            step: None,
            waiting: Waiting::default(),
            open_calls: Vec::new(),
            answered: Vec::new(),
            usage: RunUsage::default(),
            is_over: false,
        }
    }

    /// Sets what waited already when the run began, and which calls it answers.
    #[must_use]
    pub(super) fn continues(mut self, waiting: Waiting, answered: Vec<CallId>) -> Self {
        (self.waiting, self.answered) = (waiting, answered);
        self
    }

    /// Whether the run has ended, after which it has no events.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns the events of a run that the state of its thread does not allow.
    pub(super) fn refuse(names: &RunNames, error: &ApiError) -> Vec<UiEvent> {
        let (message, code) = (error.message.clone(), error.code.clone());
        vec![names.started(), UiEvent::RunError { message, code, usage: Vec::new() }]
    }

    /// Returns the events that show a thread without a session.
    pub(super) fn show_nothing(names: &RunNames) -> Vec<UiEvent> {
        let (thread_id, run_id) = (names.thread_id.clone(), names.run_id.clone());
        let finished = UiEvent::RunFinished { thread_id, run_id, result: None, outcome: None, usage: Vec::new() };
        vec![names.started(), finished]
    }

    /// Returns the events that show a thread to a client that comes back, and begin to follow its turn if one runs.
    pub(super) fn show(&mut self, is_running: bool) -> Vec<UiEvent> {
        let mut events = self.begin_open();
        if self.waiting.gates.is_empty() {
            events.extend(self.snapshot.events());
        }
        self.end_if_waiting(&mut events);
        if !is_running && !self.is_over {
            self.finish(None, None, &mut events);
        }
        events
    }

    /// Returns the events that begin the run. They end it too if all calls wait already.
    pub(super) fn begin(&mut self) -> Vec<UiEvent> {
        let mut events = self.begin_open();
        self.end_if_waiting(&mut events);
        events
    }

    fn begin_open(&self) -> Vec<UiEvent> {
        let value = json!({"sessionId": self.session});
        vec![self.names.started(), UiEvent::Custom { name: SESSION_EVENT, value }]
    }

    /// Returns the events of the next part of the turn.
    pub(super) fn push(&mut self, part: TurnPart) -> Vec<UiEvent> {
        let mut events = Vec::new();
        if self.is_over {
            return events;
        }
        match part {
            TurnPart::Text { step, delta } => self.step(step, &mut events).push_text(&delta, &mut events),
            TurnPart::Reasoning { step, delta } => self.step(step, &mut events).push_reasoning(&delta, &mut events),
            TurnPart::ReplyEnd { step, reply } => self.push_reply(step, *reply, &mut events),
            TurnPart::ClientCall(call) => {
                self.open_call(&call.call);
                if !self.waiting.client_calls.contains(&call.call) {
                    self.waiting.client_calls.push(call.call);
                }
            }
            TurnPart::GateOpened(opened) => {
                let open = open_gate(*opened);
                let interrupt = Interrupt::of_gate(&self.session, &open);
                self.waiting.gates.insert(open.gate, interrupt);
            }
            TurnPart::GateClosed(closed) => {
                self.waiting.gates.remove(&closed.gate);
            }
            TurnPart::Result(result) => self.push_result(*result, &mut events),
            // The reply has named its calls.
            TurnPart::Call(_) => {}
            TurnPart::End(end) => self.end(*end, &mut events),
        }
        self.end_if_waiting(&mut events);
        events
    }

    /// Returns the events of a run that cannot be followed any more.
    pub(super) fn fail(&mut self, error: &ApiError) -> Vec<UiEvent> {
        let mut events = Vec::new();
        self.end_with_error(error.code.clone(), error.message.clone(), &mut events);
        events
    }

    /// Returns the events of a step, which begins with its first part.
    fn step(&mut self, number: u32, events: &mut Vec<UiEvent>) -> &mut StepMessages {
        if self.step.as_ref().is_none_or(|step| step.number() != number) {
            self.close_step(events);
        }
        self.step.get_or_insert_with(|| StepMessages::begin(&self.session, self.seq, number, events))
    }

    fn close_step(&mut self, events: &mut Vec<UiEvent>) {
        if let Some(step) = self.step.take() {
            step.end(events);
        }
    }

    fn push_reply(&mut self, step: u32, reply: AiFullReceived, events: &mut Vec<UiEvent>) {
        let AiFullReceived { mut tool_calls, spent, provider, model, .. } = reply;
        let messages = self.step(step, events);
        let written = messages.end_reply(events);
        self.open_calls.clear();
        for call in &mut tool_calls {
            call.function.name = self.names.tool(&call.function.name).to_owned();
            if let Ok(id) = CallId::new(&call.id) {
                call.id = call_id(&self.session, &id);
                self.open_call(&id);
            }
            let tool_call_id = call.id.clone();
            events.push(UiEvent::ToolCallStart {
                tool_call_id: tool_call_id.clone(),
                tool_call_name: call.function.name.clone(),
                parent_message_id: written.message_id.clone(),
            });
            let pieces = split(&call.function.arguments);
            events.extend(
                pieces
                    .map(|delta| UiEvent::ToolCallArgs { tool_call_id: tool_call_id.clone(), delta: delta.to_owned() }),
            );
            events.push(UiEvent::ToolCallEnd { tool_call_id });
        }
        for (id, text) in &written.reasoning {
            self.snapshot.push_reasoning(id, text);
        }
        if !written.text.is_empty() || !tool_calls.is_empty() {
            self.snapshot.push_reply(&written.message_id, &written.text, &tool_calls);
        }
        self.usage.add(provider, model, spent.usage);
    }

    fn open_call(&mut self, call: &CallId) {
        if !self.open_calls.contains(call) {
            self.open_calls.push(call.clone());
        }
    }

    fn push_result(&mut self, result: ToolCallResult, events: &mut Vec<UiEvent>) {
        self.open_calls.retain(|call| *call != result.call);
        self.waiting.client_calls.retain(|call| *call != result.call);
        self.waiting.gates.remove(&result.call);
        // The client has its own message of what it answered, and cannot take a result back.
        let is_known = result.performer == Performer::Client && self.answered.contains(&result.call);
        if is_known || result.replaces {
            return;
        }
        let message_id = format!("{RESULT_PREFIX}{}_{}", self.session, result.call);
        let tool_call_id = call_id(&self.session, &result.call);
        let content = match (result.outcome, &result.code) {
            (Outcome::Ok, _) => result.content,
            (outcome, None) => format!("{}: {}", outcome.as_str(), result.content),
            (outcome, Some(code)) => format!("{} {}: {}", outcome.as_str(), code.as_str(), result.content),
        };
        self.snapshot.push_result(&message_id, &tool_call_id, &content);
        events.push(UiEvent::ToolCallResult { message_id, tool_call_id, content, role: TOOL });
    }

    /// Ends the run if nothing goes on before a person or the client has answered.
    fn end_if_waiting(&mut self, events: &mut Vec<UiEvent>) {
        let Waiting { gates, client_calls } = &self.waiting;
        let is_waiting = |call| gates.contains_key(call) || client_calls.contains(call);
        let has_waiting = !gates.is_empty() || !client_calls.is_empty();
        if self.is_over || !has_waiting || !self.open_calls.iter().all(is_waiting) {
            return;
        }
        self.close_step(events);
        let outcome = if self.waiting.gates.is_empty() {
            let pending = self.waiting.client_calls.iter().map(|call| call_id(&self.session, call));
            let pending_tool_call_ids = pending.collect();
            self.names.is_version_1.then_some(RunOutcome::Success { pending_tool_call_ids })
        } else {
            events.extend(self.snapshot.events());
            Some(RunOutcome::Interrupt { interrupts: self.waiting.gates.values().cloned().collect() })
        };
        self.finish(None, outcome, events);
    }

    fn end(&mut self, end: TurnOutcome, events: &mut Vec<UiEvent>) {
        let TurnOutcome { turn, stop_reason, error, .. } = end;
        match stop_reason.kind() {
            StopKind::Error => {
                let (code, message) = error.unwrap_or((ErrorCode::Internal, "the turn failed".to_owned()));
                self.end_with_error(code, message, events);
            }
            StopKind::Stopped if self.names.is_version_1 => {
                self.close_step(events);
                self.finish(None, Some(RunOutcome::Cancelled), events);
            }
            StopKind::Stopped => {
                let message = "the session was stopped".to_owned();
                self.end_with_error(ErrorCode::SessionEnded, message, events);
            }
            StopKind::Completed | StopKind::Limit => {
                self.close_step(events);
                let session_id = self.session.to_string();
                let result = RunResult { session_id, turn, stop_reason: stop_reason.as_str() };
                self.finish(Some(result), None, events);
            }
        }
    }

    fn finish(&mut self, result: Option<RunResult>, outcome: Option<RunOutcome>, events: &mut Vec<UiEvent>) {
        self.is_over = true;
        let (thread_id, run_id) = (self.names.thread_id.clone(), self.names.run_id.clone());
        events.push(UiEvent::RunFinished { thread_id, run_id, result, outcome, usage: self.usage.to_list() });
    }

    fn end_with_error(&mut self, code: ErrorCode, message: String, events: &mut Vec<UiEvent>) {
        if !self.is_over {
            self.is_over = true;
            self.close_step(events);
            events.push(UiEvent::RunError { message, code, usage: self.usage.to_list() });
        }
    }
}

#[cfg(test)]
#[path = "reply_tests.rs"]
mod tests;
