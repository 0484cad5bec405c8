//! The text of replies: shown while it is streamed, each part once.

use contract::event::AiFullReceived;
use contract::model::{Channel, Chunk};

use crate::terminal::{Output, Style};

/// The shown part of the current reply.
#[derive(Debug, Default)]
pub(super) struct LiveReply {
    is_live: bool,
    /// Turn and step of the newest complete reply, whose late chunks are dropped.
    completed_step: (u32, u32),
    /// Turn and step of the current reply.
    current_step: (u32, u32),
    attempt: String,
    shown: String,
    /// Whether stdout is in the middle of a line.
    is_line_open: bool,
    has_text_in_turn: bool,
}

impl LiveReply {
    pub(super) fn new(is_live: bool) -> Self {
        Self { is_live, ..Self::default() }
    }

    pub(super) fn append_chunk(&mut self, chunk: &Chunk) -> Vec<Output> {
        let step = (chunk.turn, chunk.step);
        if !self.is_live || step <= self.completed_step || chunk.channel == Channel::Reasoning {
            return Vec::new();
        }
        let mut outputs = Vec::new();
        if step != self.current_step || chunk.attempt != self.attempt {
            let is_retry = step == self.current_step && !self.shown.is_empty();
            outputs.extend(self.break_line());
            if is_retry {
                outputs.push(Output::Note(Style::Warn, "  the reply was interrupted and starts again".to_owned()));
            }
            self.current_step = step;
            self.attempt.clone_from(&chunk.attempt);
            self.shown.clear();
        }
        self.shown += &chunk.delta;
        outputs.extend(self.write(&chunk.delta));
        outputs
    }

    /// Shows the rest of a complete reply; all of it if the shown part is not its beginning.
    pub(super) fn complete(&mut self, full: &AiFullReceived) -> Vec<Output> {
        let step = (full.turn, full.step);
        let rest = if step == self.current_step { full.text.strip_prefix(self.shown.as_str()) } else { None };
        let mut outputs = Vec::new();
        if rest.is_none() {
            outputs.extend(self.break_line());
        }
        outputs.extend(self.write(rest.unwrap_or(&full.text)));
        outputs.extend(self.break_line());
        self.has_text_in_turn |= !full.text.trim().is_empty();
        self.completed_step = step;
        self.shown.clear();
        outputs
    }

    /// Shows the answer of the turn, if no reply of the turn has shown text.
    pub(super) fn end_turn(&mut self, answer: &str) -> Vec<Output> {
        let mut outputs: Vec<Output> = self.break_line().into_iter().collect();
        self.shown.clear();
        if !std::mem::take(&mut self.has_text_in_turn) && !answer.trim().is_empty() {
            outputs.extend(self.write(answer));
            outputs.extend(self.break_line());
        }
        outputs
    }

    /// Ends the open line of stdout, if there is one.
    pub(super) fn break_line(&mut self) -> Option<Output> {
        std::mem::take(&mut self.is_line_open).then(|| Output::Data("\n".to_owned()))
    }

    fn write(&mut self, text: &str) -> Option<Output> {
        let last = text.chars().next_back()?;
        self.is_line_open = last != '\n';
        Some(Output::Data(text.to_owned()))
    }
}
