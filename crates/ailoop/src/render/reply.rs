//! The text of replies: shown piece by piece, and each piece once.

use contract::event::AiFullReceived;
use contract::model::{Channel, Chunk};

use crate::terminal::{Output, Style};

/// What has been shown of the reply at hand.
#[derive(Debug, Default)]
pub(super) struct Reply {
    live: bool,
    /// Turn and step of the newest reply that was seen whole: its late chunks are dropped.
    whole: (u32, u32),
    at: (u32, u32),
    attempt: String,
    shown: String,
    /// Whether stdout is in the middle of a line.
    line_open: bool,
    said_in_turn: bool,
}

impl Reply {
    pub(super) fn new(live: bool) -> Self {
        Self { live, ..Self::default() }
    }

    pub(super) fn chunk(&mut self, chunk: &Chunk) -> Vec<Output> {
        let at = (chunk.turn, chunk.step);
        if !self.live || at <= self.whole || chunk.channel == Channel::Reasoning {
            return Vec::new();
        }
        let mut outputs = Vec::new();
        if at != self.at || chunk.attempt != self.attempt {
            let again = at == self.at && !self.shown.is_empty();
            outputs.extend(self.break_line());
            if again {
                outputs.push(Output::Note(Style::Warn, "  the reply broke off and begins again".to_owned()));
            }
            self.at = at;
            self.attempt.clone_from(&chunk.attempt);
            self.shown.clear();
        }
        self.shown += &chunk.delta;
        outputs.extend(self.say(&chunk.delta));
        outputs
    }

    /// Shows what was not shown of a whole reply. When what was shown is not its beginning, all of it.
    pub(super) fn whole(&mut self, full: &AiFullReceived) -> Vec<Output> {
        let at = (full.turn, full.step);
        let rest = if at == self.at { full.text.strip_prefix(self.shown.as_str()) } else { None };
        let mut outputs = Vec::new();
        if rest.is_none() {
            outputs.extend(self.break_line());
        }
        outputs.extend(self.say(rest.unwrap_or(&full.text)));
        outputs.extend(self.break_line());
        self.said_in_turn |= !full.text.trim().is_empty();
        self.whole = at;
        self.shown.clear();
        outputs
    }

    /// Shows the turn's answer where no reply has shown any text.
    pub(super) fn end_of_turn(&mut self, answer: &str) -> Vec<Output> {
        let mut outputs: Vec<Output> = self.break_line().into_iter().collect();
        self.shown.clear();
        if !std::mem::take(&mut self.said_in_turn) && !answer.trim().is_empty() {
            outputs.extend(self.say(answer));
            outputs.extend(self.break_line());
        }
        outputs
    }

    /// Ends a line that stdout is in the middle of. What follows of the reply begins a new one.
    pub(super) fn break_line(&mut self) -> Option<Output> {
        std::mem::take(&mut self.line_open).then(|| Output::Data("\n".to_owned()))
    }

    fn say(&mut self, text: &str) -> Option<Output> {
        let last = text.chars().next_back()?;
        self.line_open = last != '\n';
        Some(Output::Data(text.to_owned()))
    }
}
