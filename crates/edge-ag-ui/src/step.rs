//! The messages of one step: reasoning, text, and the calls that belong to the same message.

use contract::SessionId;
use contract::limits::AG_UI_DELTA_BYTES_MAX;

use super::events::{ASSISTANT, REASONING, UiEvent};

/// A step whose reply is on its way.
#[derive(Debug)]
pub(super) struct StepMessages {
    number: u32,
    /// Beginning of the ids of its messages, without their kind.
    id: String,
    text: String,
    is_text_open: bool,
    /// Reasoning that has come, by id of its message. More of them follow if text comes in between.
    reasoning: Vec<(String, String)>,
    is_reasoning_open: bool,
}

/// Text and reasoning that the reply of a step has written.
#[derive(Debug)]
pub(super) struct StepReply {
    /// The message that has the text, and the calls.
    pub(super) message_id: String,
    pub(super) text: String,
    pub(super) reasoning: Vec<(String, String)>,
}

impl StepMessages {
    pub(super) fn begin(session: &SessionId, seq: u64, number: u32, events: &mut Vec<UiEvent>) -> Self {
        events.push(UiEvent::StepStarted { step_name: name(number) });
        Self {
            number,
            id: format!("{session}_{seq}_{number}"),
            text: String::new(),
            is_text_open: false,
            reasoning: Vec::new(),
            is_reasoning_open: false,
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn push_text(&mut self, delta: &str, events: &mut Vec<UiEvent>) {
        self.close_reasoning(events);
        let message_id = self.message_id();
        if !self.is_text_open {
            self.is_text_open = true;
            events.push(UiEvent::TextMessageStart { message_id: message_id.clone(), role: ASSISTANT });
        }
        self.text.push_str(delta);
        let content =
            |delta: &str| UiEvent::TextMessageContent { message_id: message_id.clone(), delta: delta.to_owned() };
        events.extend(split(delta).map(content));
    }

    pub(super) fn push_reasoning(&mut self, delta: &str, events: &mut Vec<UiEvent>) {
        if !self.is_reasoning_open {
            self.is_reasoning_open = true;
            let message_id = format!("reasoning_{}_{}", self.id, self.reasoning.len() + 1);
            self.reasoning.push((message_id.clone(), String::new()));
            events.push(UiEvent::ReasoningStart { message_id: message_id.clone() });
            events.push(UiEvent::ReasoningMessageStart { message_id, role: REASONING });
        }
        if let Some((message_id, text)) = self.reasoning.last_mut() {
            text.push_str(delta);
            let content = |delta: &str| UiEvent::ReasoningMessageContent {
                message_id: message_id.clone(),
                delta: delta.to_owned(),
            };
            events.extend(split(delta).map(content));
        }
    }

    /// Closes the messages of the reply, and returns them.
    pub(super) fn end_reply(&mut self, events: &mut Vec<UiEvent>) -> StepReply {
        self.close(events);
        StepReply {
            message_id: self.message_id(),
            text: std::mem::take(&mut self.text),
            reasoning: std::mem::take(&mut self.reasoning),
        }
    }

    /// Ends the step, with everything that is open in it.
    pub(super) fn end(mut self, events: &mut Vec<UiEvent>) {
        self.close(events);
        events.push(UiEvent::StepFinished { step_name: name(self.number) });
    }

    fn message_id(&self) -> String {
        format!("msg_{}", self.id)
    }

    fn close(&mut self, events: &mut Vec<UiEvent>) {
        self.close_reasoning(events);
        if std::mem::take(&mut self.is_text_open) {
            events.push(UiEvent::TextMessageEnd { message_id: self.message_id() });
        }
    }

    fn close_reasoning(&mut self, events: &mut Vec<UiEvent>) {
        if std::mem::take(&mut self.is_reasoning_open)
            && let Some((message_id, _)) = self.reasoning.last()
        {
            events.push(UiEvent::ReasoningMessageEnd { message_id: message_id.clone() });
            events.push(UiEvent::ReasoningEnd { message_id: message_id.clone() });
        }
    }
}

/// Splits a text into deltas of bounded size.
pub(super) fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (delta, more) = rest.split_at(rest.floor_char_boundary(AG_UI_DELTA_BYTES_MAX));
        rest = more;
        (!delta.is_empty()).then_some(delta)
    })
}

fn name(number: u32) -> String {
    format!("step {number}")
}
