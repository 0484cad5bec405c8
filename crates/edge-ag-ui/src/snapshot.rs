//! State and messages of a thread as its client has them, with the messages of the run. An interrupt repeats them.

use contract::Json;
use contract::limits::AG_UI_SNAPSHOT_BYTES_MAX;
use contract::model::ToolCall;
use serde::Serialize;
use serde_json::json;
use service::connections::{BookedBytes, ByteBudget};

use super::events::{ASSISTANT, REASONING, TOOL, UiEvent};

/// State and messages of a thread, as long as there is room for them.
#[derive(Debug)]
pub(super) struct ThreadSnapshot {
    budget: ByteBudget,
    contents: Option<Contents>,
}

#[derive(Debug)]
struct Contents {
    state: (Json, BookedBytes),
    messages: Vec<(Json, BookedBytes)>,
    bytes: usize,
}

impl ThreadSnapshot {
    /// Begins with what the client has.
    pub(super) fn new(budget: ByteBudget, state: Option<Json>, messages: Vec<Json>) -> Self {
        let state = state.filter(|state| state.get() != "null").unwrap_or_else(|| Json::of(&json!({})));
        let bytes = state.get().len();
        let booked = budget.book(bytes);
        let contents = booked.map(|booked| Contents { state: (state, booked), messages: Vec::new(), bytes });
        let mut snapshot = Self { budget, contents };
        for message in messages {
            snapshot.push(message);
        }
        snapshot
    }

    pub(super) fn push_reasoning(&mut self, id: &str, text: &str) {
        self.push(Json::of(&json!({"id": id, "role": REASONING, "content": text})));
    }

    pub(super) fn push_reply(&mut self, id: &str, text: &str, calls: &[ToolCall]) {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Reply<'a> {
            id: &'a str,
            role: &'static str,
            #[serde(skip_serializing_if = "str::is_empty")]
            content: &'a str,
            #[serde(skip_serializing_if = "<[ToolCall]>::is_empty")]
            tool_calls: &'a [ToolCall],
        }
        self.push(Json::of(&Reply { id, role: ASSISTANT, content: text, tool_calls: calls }));
    }

    pub(super) fn push_result(&mut self, id: &str, call: &str, content: &str) {
        self.push(Json::of(&json!({"id": id, "role": TOOL, "toolCallId": call, "content": content})));
    }

    /// Returns the events that repeat state and messages. Without room for them there are none, and a client keeps what
    /// it has: the events of the run said all of it.
    pub(super) fn events(&self) -> Vec<UiEvent> {
        let Some(Contents { state, messages, .. }) = &self.contents else { return Vec::new() };
        let state = UiEvent::StateSnapshot { snapshot: state.0.clone() };
        let messages = messages.iter().map(|(message, _)| message.clone()).collect();
        vec![state, UiEvent::MessagesSnapshot { messages }]
    }

    fn push(&mut self, message: Json) {
        let Some(contents) = &mut self.contents else { return };
        contents.bytes += message.get().len();
        match self.budget.book(message.get().len()) {
            Some(booked) if contents.bytes <= AG_UI_SNAPSHOT_BYTES_MAX => {
                contents.messages.push((message, booked));
            }
            Some(_) | None => self.contents = None,
        }
    }
}
