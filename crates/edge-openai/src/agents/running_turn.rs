//! A turn that runs: its items that are not complete, and their places in the output.

use std::collections::BTreeMap;

use contract::{CallId, SessionId, Timestamp};
use edge_core::turn::TurnFollower;
use serde_json::{Value, json};

use super::{items, turn_json};

/// A turn in its progress.
#[derive(Debug)]
pub(super) struct RunningTurn {
    number: u32,
    id: String,
    /// The turn as it is while it runs.
    pub(super) json: Value,
    pub(super) follower: TurnFollower,
    /// Number of items that the agent has made.
    output_count: usize,
    message: Option<OpenMessage>,
    /// Items of calls that run, with their places in the output.
    pub(super) open: BTreeMap<CallId, (usize, Value)>,
}

/// The message of a reply while its text comes.
#[derive(Debug)]
struct OpenMessage {
    id: String,
    step: u32,
    /// Place in the output; `None` until there is more than white space.
    index: Option<usize>,
    text: String,
}

/// An event about text. Its place is in the text, since a piece of a reply has none in the log.
#[derive(Debug)]
pub(super) struct TextEvent {
    pub(super) kind: &'static str,
    pub(super) place: String,
    pub(super) body: Value,
}

impl RunningTurn {
    pub(super) fn new(session: &SessionId, agent: &str, number: u32, created: Timestamp) -> Self {
        let id = items::turn_id(session, number);
        let json = turn_json::running(&id, session, agent, created);
        let (follower, open) = (TurnFollower::default(), BTreeMap::new());
        Self { number, id, json, follower, output_count: 0, message: None, open }
    }

    /// Adds the item of a call; returns its place in the output.
    pub(super) fn open_call(&mut self, call: CallId, item: Value) -> usize {
        let index = self.output_count;
        self.output_count += 1;
        self.open.insert(call, (index, item));
        index
    }

    /// Adds text of the reply of a step.
    pub(super) fn push_text(&mut self, session: &SessionId, step: u32, delta: &str) -> Vec<TextEvent> {
        let place = format!("{}.{step}", self.number);
        let id = items::message_id(session, self.number, step);
        let message = self.message.get_or_insert(OpenMessage { id, step, index: None, text: String::new() });
        message.text.push_str(delta);
        let (id, end) = (&message.id, message.text.chars().count());
        let event = |kind, place, body| TextEvent { kind, place, body };
        let text_event = |index: usize, delta: &str| {
            let body = json!({"item_id": id, "output_index": index, "content_index": 0, "delta": delta});
            event("turn.output_text.delta", format!("{place}.{end}"), body)
        };
        if let Some(index) = message.index {
            return vec![text_event(index, delta)];
        }
        if message.text.trim().is_empty() {
            return Vec::new();
        }
        let index = self.output_count;
        self.output_count += 1;
        message.index = Some(index);
        let item = items::reply(id, &self.id, "in_progress", None, None);
        let part = json!({
            "item_id": id, "output_index": index, "content_index": 0, "part": items::output_text(""),
        });
        vec![
            event("turn.item.added", format!("{place}-item"), json!({"item": item, "output_index": index})),
            event("turn.content_part.added", format!("{place}-part"), part),
            text_event(index, &message.text),
        ]
    }

    /// Ends the message of a reply, if there is one.
    pub(super) fn finish_message(&mut self, status: &str, phase: &str) -> Vec<TextEvent> {
        let Some(OpenMessage { id, step, index: Some(index), text }) = self.message.take() else { return Vec::new() };
        let item = items::reply(&id, &self.id, status, Some(phase), Some(&text));
        let event = |kind, what, body| TextEvent { kind, place: format!("{}.{step}-{what}-done", self.number), body };
        let text_done = json!({"item_id": id, "output_index": index, "content_index": 0, "text": text});
        let part_done = json!({
            "item_id": id, "output_index": index, "content_index": 0, "part": items::output_text(&text),
        });
        vec![
            event("turn.output_text.done", "text", text_done),
            event("turn.content_part.done", "part", part_done),
            event("turn.item.done", "item", json!({"item": item, "output_index": index})),
        ]
    }
}
