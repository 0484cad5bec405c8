//! Translates the events of a session, over all its turns, into those of the Agents API.
//!
//! The id of an event follows from its place in the log, or in the text of its reply: a client that connects again, to any
//! replica, knows what it has seen already.

use contract::command::MessageMode;
use contract::event::{ToolCallResult, Topic, TurnStarted, UserProcessed};
use contract::{CallId, Timestamp};
use edge_core::feed::viewer_event::{EventRole, ViewerEvent};
use edge_core::turn::{TurnOutcome, TurnPart, open_gate};
use serde_json::{Value, json};

use super::items::{self, RequiredAction};
use super::running_turn::{RunningTurn, TextEvent};
use super::session_json::{self, AgentSession};
use super::turn_json;

/// Messages that wait for a turn. The loop takes fewer.
const WAITING_MAX: usize = 256;

/// A session in its progress.
#[derive(Debug)]
pub(super) struct EventBuilder {
    session: AgentSession,
    turn: Option<RunningTurn>,
    /// Messages for the next turn.
    waiting: Vec<UserProcessed>,
    /// Place of the current event in the log, and how many events came from it.
    place: (u64, u32),
    ready: Vec<Value>,
}

impl EventBuilder {
    /// Begins with a session that no turn runs in.
    pub(super) fn new(session: AgentSession, seq: u64) -> Self {
        Self { session, turn: None, waiting: Vec::new(), place: (seq, 0), ready: Vec::new() }
    }

    /// Returns the `seq` of the last event that was taken.
    pub(super) fn seq(&self) -> u64 {
        self.place.0
    }

    /// Whether no turn runs, and the session waits for a message or has ended.
    pub(super) fn is_at_rest(&self) -> bool {
        self.turn.is_none()
    }

    /// Returns the event that says in which state the session is.
    pub(super) fn state_event(&mut self, kind: Option<&str>) -> Value {
        let kind = kind.unwrap_or_else(|| self.session.status()).to_owned();
        let id = format!("{}-{kind}", self.place.0);
        let event = json!({"session": self.session.to_json()});
        self.with_id(&format!("agent.session.{kind}"), &id, event)
    }

    /// Returns the event that ends a stream which cannot go on.
    pub(super) fn error_event(&self, code: &str, message: &str) -> Value {
        let error = json!({"code": code, "message": message, "param": null, "type": "server_error"});
        let event = json!({"session_id": self.session.id, "error": error});
        self.with_id("error", &format!("{}-error-{code}", self.place.0), event)
    }

    /// Takes the next event of the log or a piece of a reply; returns the events that follow from it.
    pub(super) fn push(&mut self, event: &ViewerEvent) -> Vec<Value> {
        if let Some(seq) = event.envelope.seq {
            self.place = (seq, 0);
        }
        let time = event.envelope.time;
        self.session.active = self.session.active.max(time);
        let data = event.envelope.data.get();
        if event.topic == Topic::UserProcessed
            && let Ok(message) = serde_json::from_str(data)
        {
            self.push_message(message);
        } else if event.topic == Topic::TurnStarted
            && let Ok(TurnStarted { turn, messages, .. }) = serde_json::from_str(data)
        {
            self.begin_turn(turn, time, |message| messages.contains(&message.message_id));
        }
        // A log of a fold below 15 does not say when a turn began, nor with which messages.
        match event.role {
            EventRole::ReplyEnd(turn, _) | EventRole::TurnOutcome(turn) => self.reach_turn(turn, time),
            EventRole::Chunk(position) => self.reach_turn(position.turn, time),
            EventRole::Plain | EventRole::Transient | EventRole::SessionEnd => {}
        }
        let parts = self.turn.as_mut().map(|turn| turn.follower.push(event)).unwrap_or_default();
        for part in parts {
            self.push_part(part, time);
        }
        if event.role == EventRole::SessionEnd {
            self.session.end = Some("the session has ended and takes no message any more".to_owned());
            self.emit_state();
        } else if event.topic == Topic::TurnCompleted {
            self.emit_state();
        }
        std::mem::take(&mut self.ready)
    }

    fn push_message(&mut self, message: UserProcessed) {
        let is_read_now = self.turn.is_some()
            && match message.mode {
                MessageMode::Steer | MessageMode::Interrupt => true,
                MessageMode::Queue => false,
            };
        if is_read_now {
            self.add_message(&message);
        } else if self.waiting.len() < WAITING_MAX {
            self.waiting.push(message);
        }
    }

    /// Begins the turn of an event if it has not begun.
    fn reach_turn(&mut self, number: u32, time: Timestamp) {
        if number > self.session.turn {
            self.begin_turn(number, time, |_| true);
        }
    }

    fn begin_turn(&mut self, number: u32, time: Timestamp, reads: impl Fn(&UserProcessed) -> bool) {
        let begun = RunningTurn::new(&self.session.id, &self.session.agent, number, time);
        let turn = begun.json.clone();
        self.turn = Some(begun);
        (self.session.turn, self.session.is_running) = (number, true);
        self.emit_state();
        // A turn begins with a piece of its reply, or with an event of the log: its own number is the same for both.
        self.emit_at("turn.created", &format!("{number}.created"), json!({"turn": turn}));
        self.emit_at("turn.in_progress", &format!("{number}.in_progress"), json!({"turn": turn}));
        let (read, waiting) = std::mem::take(&mut self.waiting).into_iter().partition::<Vec<_>, _>(reads);
        self.waiting = waiting;
        for message in &read {
            self.add_message(message);
        }
    }

    fn add_message(&mut self, message: &UserProcessed) {
        let item = items::user_message(&self.session.id, &self.turn_id(), message);
        let place = format!("{}-added", message.message_id);
        self.emit_at("turn.item.added", &place, json!({"item": item, "output_index": null}));
    }

    fn push_part(&mut self, part: TurnPart, time: Timestamp) {
        let turn = self.turn_id();
        match part {
            TurnPart::Text { step, delta } => {
                let events = self.turn.as_mut().map(|turn| turn.push_text(&self.session.id, step, &delta));
                self.emit_text(events.unwrap_or_default());
            }
            TurnPart::Reasoning { .. } => {}
            TurnPart::ReplyEnd { reply, .. } => {
                let phase = if reply.tool_calls.is_empty() { "final_answer" } else { "commentary" };
                let events = self.turn.as_mut().map(|turn| turn.finish_message("completed", phase));
                self.emit_text(events.unwrap_or_default());
            }
            TurnPart::Call(call) => {
                if let Some(item) = items::fleet_call(&self.session.id, &turn, &call) {
                    self.open_call(call.call, &item);
                }
            }
            TurnPart::ClientCall(call) => {
                let action = RequiredAction::of_call(&turn, &call.call, call.tool.as_str(), call.arguments.get());
                self.open_call(call.call.clone(), &items::client_call(&self.session.id, &turn, &call));
                self.require(action);
            }
            TurnPart::GateOpened(gate) => self.require(session_json::of_gate(&turn, &open_gate(*gate))),
            TurnPart::GateClosed(gate) => self.resolve(&gate.gate),
            TurnPart::Result(result) => self.push_result(&result),
            TurnPart::End(end) => self.end_turn(&end, time),
        }
    }

    fn emit_text(&mut self, events: Vec<TextEvent>) {
        for TextEvent { kind, place, body } in events {
            self.emit_at(kind, &place, body);
        }
    }

    fn open_call(&mut self, call: CallId, item: &Value) {
        let Some(turn) = &mut self.turn else { return };
        let index = turn.open_call(call, item.clone());
        self.emit("turn.item.added", json!({"item": item, "output_index": index}));
    }

    fn push_result(&mut self, result: &ToolCallResult) {
        let id = self.turn_id();
        let Some((index, item)) = self.turn.as_mut().and_then(|turn| turn.open.remove(&result.call)) else { return };
        let is_client_call = item["type"] == "function_call";
        let item = items::complete_call(item, result);
        self.emit("turn.item.done", json!({"item": item, "output_index": index}));
        if is_client_call {
            let item = items::call_output(&self.session.id, &id, result);
            self.emit("turn.item.added", json!({"item": item, "output_index": null}));
        }
        self.resolve(&result.call);
    }

    fn require(&mut self, action: RequiredAction) {
        self.session.actions.retain(|known| known.id != action.id);
        self.session.actions.push(action);
        self.emit_state();
    }

    fn resolve(&mut self, action: &CallId) {
        let before = self.session.actions.len();
        self.session.actions.retain(|known| known.id != *action);
        if before > self.session.actions.len() {
            self.emit_state();
        }
    }

    fn end_turn(&mut self, end: &TurnOutcome, time: Timestamp) {
        let Some(mut turn) = self.turn.take() else { return };
        let events = turn.finish_message("incomplete", "commentary");
        self.emit_text(events);
        for (index, mut item) in turn.open.into_values() {
            item["status"] = json!("incomplete");
            self.emit("turn.item.done", json!({"item": item, "output_index": index}));
        }
        let ended = turn_json::complete(turn.json, end, time);
        let kind = format!("turn.{}", ended["status"].as_str().unwrap_or("failed"));
        self.session.spent = self.session.spent.plus(end.spent);
        self.session.actions.clear();
        self.session.is_running = false;
        let usage = ended["usage"].clone();
        self.emit(&kind, json!({"turn": ended, "usage": usage}));
    }

    fn turn_id(&self) -> String {
        items::turn_id(&self.session.id, self.session.turn)
    }

    /// Adds the event that says in which state the session is now.
    fn emit_state(&mut self) {
        let state = self.state_event(None);
        self.ready.push(state);
    }

    /// Adds an event that follows from the current event of the log.
    fn emit(&mut self, kind: &str, body: Value) {
        let id = format!("{}-{}", self.place.0, self.place.1);
        self.place.1 += 1;
        self.emit_at(kind, &id, body);
    }

    fn emit_at(&mut self, kind: &str, id: &str, mut body: Value) {
        body["session_id"] = json!(self.session.id);
        body["turn_id"] = json!(self.turn_id());
        let event = self.with_id(&format!("agent.session.{kind}"), id, body);
        self.ready.push(event);
    }

    fn with_id(&self, kind: &str, id: &str, mut body: Value) -> Value {
        body["type"] = json!(kind);
        body["event_id"] = json!(format!("evt_{}_{id}", self.session.id));
        body
    }
}
