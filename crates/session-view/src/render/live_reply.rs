//! The text of replies: shown while it is streamed, each part once.

use contract::event::AiFullReceived;
use contract::model::{Channel, Chunk};
use terminal::markdown::{MarkdownLayout, MarkdownStream};
use terminal::{Layout, Output, ReplyFormat, Style, StyledLine};

/// The shown part of the current reply.
#[derive(Debug)]
pub(super) struct LiveReply {
    /// None: text is shown as the model wrote it, when the reply is complete.
    markdown: Option<MarkdownStream>,
    /// Turn and step of the newest complete reply, whose late chunks are dropped.
    completed_step: (u32, u32),
    /// Turn and step of the current reply.
    current_step: (u32, u32),
    attempt: String,
    shown: String,
    has_text_in_turn: bool,
}

impl LiveReply {
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            markdown: markdown_layout(layout).map(MarkdownStream::new),
            completed_step: (0, 0),
            current_step: (0, 0),
            attempt: String::new(),
            shown: String::new(),
            has_text_in_turn: false,
        }
    }

    /// Sets the layout of the next blocks.
    pub(super) fn set_layout(&mut self, layout: Layout) {
        if let (Some(markdown), Some(layout)) = (&mut self.markdown, markdown_layout(layout)) {
            markdown.set_layout(layout);
        }
    }

    pub(super) fn append_chunk(&mut self, chunk: &Chunk) -> Vec<Output> {
        let step = (chunk.turn, chunk.step);
        if self.markdown.is_none() || step <= self.completed_step || chunk.channel == Channel::Reasoning {
            return Vec::new();
        }
        let mut outputs = Vec::new();
        if step != self.current_step || chunk.attempt != self.attempt {
            let is_retry = step == self.current_step && !self.shown.is_empty();
            outputs.extend(self.flush());
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
            outputs.extend(self.flush());
        }
        outputs.extend(self.write(rest.unwrap_or(&full.text)));
        outputs.extend(self.flush());
        self.has_text_in_turn |= !full.text.trim().is_empty();
        self.completed_step = step;
        self.shown.clear();
        outputs
    }

    /// Shows the answer of the turn, if no reply of the turn has shown text.
    pub(super) fn end_turn(&mut self, answer: &str) -> Vec<Output> {
        let mut outputs = self.flush();
        self.shown.clear();
        if !std::mem::take(&mut self.has_text_in_turn) && !answer.trim().is_empty() {
            outputs.extend(self.write(answer));
            outputs.extend(self.flush());
        }
        outputs
    }

    /// Shows the held back part of a reply that does not go on.
    pub(super) fn flush(&mut self) -> Vec<Output> {
        self.markdown.as_mut().map(MarkdownStream::finish).unwrap_or_default().into_iter().map(Output::Line).collect()
    }

    /// Returns the lines of the part that is held back.
    pub(super) fn preview(&self) -> Vec<StyledLine> {
        self.markdown.as_ref().map(MarkdownStream::preview).unwrap_or_default()
    }

    fn write(&mut self, text: &str) -> Vec<Output> {
        match &mut self.markdown {
            Some(markdown) => markdown.push(text).into_iter().map(Output::Line).collect(),
            None if text.is_empty() => Vec::new(),
            None => {
                let line_end = if text.ends_with('\n') { "" } else { "\n" };
                vec![Output::Data(format!("{text}{line_end}"))]
            }
        }
    }
}

fn markdown_layout(layout: Layout) -> Option<MarkdownLayout> {
    match layout.reply {
        ReplyFormat::Markdown { has_styles } => Some(MarkdownLayout { columns: layout.columns, has_styles }),
        ReplyFormat::Raw => None,
    }
}
