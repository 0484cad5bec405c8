//! A task: one turn of a session as A2A shows it, folded from the parts of the turn.

use std::collections::BTreeMap;

use contract::Timestamp;
use contract::event::{AiFullReceived, ClientCallOpened, GateOpened, StopKind, StopReason};
use edge_core::turn::{TurnOutcome, TurnPart};
use serde_json::{Value, json};

use super::message;
use super::task_id::TaskId;

/// The state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskPhase {
    /// The message waits for its turn.
    Submitted,
    Working,
    /// A gate is open, or a call waits for the client.
    InputRequired,
    Completed,
    Failed,
    Canceled,
}

impl TaskPhase {
    pub(super) const ALL: [Self; 6] =
        [Self::Submitted, Self::Working, Self::InputRequired, Self::Completed, Self::Failed, Self::Canceled];

    /// Returns the name on the wire.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "TASK_STATE_SUBMITTED",
            Self::Working => "TASK_STATE_WORKING",
            Self::InputRequired => "TASK_STATE_INPUT_REQUIRED",
            Self::Completed => "TASK_STATE_COMPLETED",
            Self::Failed => "TASK_STATE_FAILED",
            Self::Canceled => "TASK_STATE_CANCELED",
        }
    }

    /// Returns the state of a turn that ended.
    pub(super) const fn of_end(stop_reason: StopReason) -> Self {
        match stop_reason.kind() {
            StopKind::Error => Self::Failed,
            StopKind::Stopped => Self::Canceled,
            StopKind::Completed | StopKind::Limit => Self::Completed,
        }
    }

    /// Whether nothing follows this state any more.
    pub(super) const fn is_final(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Canceled => true,
            Self::Submitted | Self::Working | Self::InputRequired => false,
        }
    }

    /// Whether the client has the next step to take, if any.
    pub(super) fn is_at_rest(self) -> bool {
        self.is_final() || self == Self::InputRequired
    }
}

/// A task, as far as it has come.
#[derive(Debug)]
pub(super) struct AgentTask {
    pub(super) id: TaskId,
    /// Time of the last change of the state.
    pub(super) changed: Timestamp,
    pub(super) is_started: bool,
    /// Gates that wait for their answer.
    pub(super) gates: Vec<GateOpened>,
    /// Calls that wait for the client.
    pub(super) calls: Vec<ClientCallOpened>,
    /// Whole replies by step.
    answers: BTreeMap<u32, String>,
    /// Replies of which chunks went out, by step.
    streamed: BTreeMap<u32, String>,
    /// Text that the loop adds at a limit to the text of the model.
    ending: String,
    history: Vec<Value>,
    end: Option<Box<TurnOutcome>>,
}

/// A change of a task that its followers get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TaskUpdate {
    Status,
    /// Text of an artifact. One that is not appended replaces what the artifact had.
    Artifact {
        id: String,
        text: String,
        is_append: bool,
        is_last: bool,
    },
}

impl AgentTask {
    pub(super) fn new(id: TaskId, changed: Timestamp) -> Self {
        Self {
            id,
            changed,
            is_started: false,
            gates: Vec::new(),
            calls: Vec::new(),
            answers: BTreeMap::new(),
            streamed: BTreeMap::new(),
            ending: String::new(),
            history: Vec::new(),
            end: None,
        }
    }

    pub(super) fn phase(&self) -> TaskPhase {
        match &self.end {
            Some(end) => TaskPhase::of_end(end.stop_reason),
            None if !self.is_started => TaskPhase::Submitted,
            None if self.gates.is_empty() && self.calls.is_empty() => TaskPhase::Working,
            None => TaskPhase::InputRequired,
        }
    }

    /// Adds a message to the history.
    pub(super) fn remember(&mut self, message: Value) {
        self.history.push(message);
    }

    /// Takes the next part of the turn; returns what changes for those who follow the task.
    pub(super) fn push(&mut self, part: TurnPart, time: Timestamp) -> Vec<TaskUpdate> {
        if self.end.is_some() {
            return Vec::new();
        }
        let mut updates = Vec::new();
        if !self.is_started && !matches!(part, TurnPart::End(_)) {
            self.is_started = true;
            self.changed = time;
            updates.push(TaskUpdate::Status);
        }
        let before = (self.phase(), self.gates.len(), self.calls.len());
        match part {
            TurnPart::Text { step, delta } => updates.push(self.push_text(step, delta)),
            TurnPart::ReplyEnd { step, reply } => updates.extend(self.push_reply(step, *reply)),
            TurnPart::GateOpened(gate) => self.gates.push(*gate),
            TurnPart::GateClosed(closed) => {
                if let Some(place) = self.gates.iter().position(|gate| gate.gate == closed.gate) {
                    let gate = self.gates.remove(place);
                    self.history.push(message::of_gate(&self.id, &gate));
                    self.history.push(message::of_answer(&self.id, &closed));
                }
            }
            TurnPart::ClientCall(call) => self.calls.push(*call),
            TurnPart::Result(result) => self.calls.retain(|call| call.call != result.call),
            TurnPart::End(end) => updates.extend(self.push_end(end)),
            TurnPart::Reasoning { .. } | TurnPart::Call(_) => {}
        }
        if before != (self.phase(), self.gates.len(), self.calls.len()) {
            self.changed = time;
            updates.push(TaskUpdate::Status);
        }
        updates
    }

    fn push_text(&mut self, step: u32, delta: String) -> TaskUpdate {
        let text = self.streamed.entry(step).or_default();
        let is_append = !text.is_empty();
        text.push_str(&delta);
        TaskUpdate::Artifact { id: artifact_id(step), text: delta, is_append, is_last: false }
    }

    /// The whole reply replaces what was streamed of it, if it differs.
    fn push_reply(&mut self, step: u32, reply: AiFullReceived) -> Option<TaskUpdate> {
        let streamed = self.streamed.remove(&step);
        if reply.text.is_empty() && streamed.is_none() {
            return None;
        }
        let is_append = streamed.as_ref() == Some(&reply.text);
        let text = if is_append { String::new() } else { reply.text.clone() };
        self.answers.insert(step, reply.text);
        Some(TaskUpdate::Artifact { id: artifact_id(step), text, is_append, is_last: true })
    }

    fn push_end(&mut self, end: Box<TurnOutcome>) -> Option<TaskUpdate> {
        self.gates.clear();
        self.calls.clear();
        self.streamed.clear();
        let last = self.answers.last_key_value().map_or("", |(_, text)| text.as_str());
        let ending = end.final_response.strip_prefix(last).unwrap_or(&end.final_response);
        ending.trim().clone_into(&mut self.ending);
        self.end = Some(end);
        let text = self.ending.clone();
        let update = TaskUpdate::Artifact { id: ENDING.to_owned(), text, is_append: false, is_last: true };
        (!self.ending.is_empty()).then_some(update)
    }

    /// Returns the task on the wire. `history` is the number of messages of the history; all if none is given.
    pub(super) fn to_json(&self, history: Option<usize>, has_artifacts: bool) -> Value {
        let mut task = json!({"id": self.id.to_string(), "contextId": self.id.session, "status": self.status()});
        let artifacts = self.answers.iter().map(|(step, text)| artifact(&artifact_id(*step), text));
        let ending = (!self.ending.is_empty()).then(|| artifact(ENDING, &self.ending));
        let artifacts: Vec<Value> = artifacts.chain(ending).collect();
        if has_artifacts && !artifacts.is_empty() {
            task["artifacts"] = json!(artifacts);
        }
        let left_out = self.history.len().saturating_sub(history.unwrap_or(usize::MAX));
        if left_out < self.history.len() {
            task["history"] = json!(self.history[left_out..]);
        }
        if let Some(end) = &self.end {
            task["metadata"] = json!({"stop_reason": end.stop_reason, "spent": end.spent});
        }
        task
    }

    /// Returns an update on the wire.
    pub(super) fn update_to_json(&self, update: &TaskUpdate) -> Value {
        let (task, context) = (self.id.to_string(), &self.id.session);
        match update {
            TaskUpdate::Status => {
                json!({"statusUpdate": {"taskId": task, "contextId": context, "status": self.status()}})
            }
            TaskUpdate::Artifact { id, text, is_append, is_last } => json!({"artifactUpdate": {
                "taskId": task, "contextId": context, "artifact": artifact(id, text),
                "append": is_append, "lastChunk": is_last,
            }}),
        }
    }

    fn status(&self) -> Value {
        let mut status = json!({"state": self.phase().as_str(), "timestamp": self.changed});
        let asked = self.gates.first().map(|gate| message::of_gate(&self.id, gate));
        let asked = asked.or_else(|| self.calls.first().map(|call| message::of_client_call(&self.id, call)));
        if let Some(message) = asked.or_else(|| self.end.as_ref().and_then(|end| message::of_end(&self.id, end))) {
            status["message"] = message;
        }
        status
    }
}

/// Id of the artifact that holds what the loop adds at a limit.
const ENDING: &str = "ending";

/// Each reply of the model is an artifact of its own.
fn artifact_id(step: u32) -> String {
    format!("step-{step}")
}

fn artifact(id: &str, text: &str) -> Value {
    json!({"artifactId": id, "name": "answer", "parts": [{"text": text, "mediaType": "text/plain"}]})
}
