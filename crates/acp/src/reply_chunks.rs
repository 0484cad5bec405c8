//! Text and reasoning of replies as chunks that are never taken back. Pure.

use contract::event::AiFullReceived;
use contract::model::{Channel, Chunk, ReplyText, parse_attempt};

use super::update::{Block, SessionUpdate};

/// Turn and step of a reply.
type ReplyStep = (u32, u32);

/// The replies of a session; each text is sent once.
#[derive(Debug, Default)]
pub(super) struct ReplyChunks {
    current: ReplyStep,
    text: ReplyText,
    reasoning: ReplyText,
    /// The newest complete reply; later chunks of it are obsolete.
    completed: ReplyStep,
    /// Whether text is dropped, after the person cancelled.
    is_muted: bool,
    /// The newest reply whose text is dropped, also after [`Self::unmute`].
    muted_through: ReplyStep,
    /// The reply that the client's current message block belongs to, if nothing else came after it.
    open_block: Option<ReplyStep>,
    has_text_in_turn: bool,
}

impl ReplyChunks {
    pub(super) fn push_chunk(&mut self, chunk: &Chunk) -> Option<SessionUpdate> {
        let step = (chunk.turn, chunk.step);
        let attempt = parse_attempt(&chunk.attempt)?;
        if step <= self.completed {
            return None;
        }
        self.enter(step);
        let delta = match chunk.channel {
            Channel::Text => self.text.push(attempt, &chunk.delta),
            Channel::Reasoning => self.reasoning.push(attempt, &chunk.delta),
        };
        match chunk.channel {
            Channel::Text => self.text_update(step, delta),
            Channel::Reasoning => self.thought_update(step, delta),
        }
    }

    /// Takes a complete reply; returns updates for the part that was not sent.
    pub(super) fn complete(&mut self, full: &AiFullReceived) -> Vec<SessionUpdate> {
        let step = (full.turn, full.step);
        self.enter(step);
        // Reasoning that comes after text cannot stand before it any more.
        let thought = if self.text.is_begun() { String::new() } else { self.reasoning.finish(&full.reasoning) };
        let text = self.text.finish(&full.text);
        self.completed = step;
        [self.thought_update(step, thought), self.text_update(step, text)].into_iter().flatten().collect()
    }

    /// Ends a turn; returns its answer if no reply of the turn had text.
    pub(super) fn end_turn(&mut self, turn: u32, answer: &str) -> Option<SessionUpdate> {
        let answer = if std::mem::take(&mut self.has_text_in_turn) { "" } else { answer };
        let update = self.text_update((turn, u32::MAX), answer.to_owned());
        self.has_text_in_turn = false;
        self.open_block = None;
        update
    }

    /// After a lost connection the reply so far comes again.
    pub(super) fn restart(&mut self) {
        self.text.restart();
        self.reasoning.restart();
    }

    /// Begins a new block of the client's display with the next text.
    pub(super) fn close_block(&mut self) {
        self.open_block = None;
    }

    /// Drops the text of the running reply, and of later ones until [`Self::unmute`].
    pub(super) fn mute(&mut self) {
        self.is_muted = true;
        self.open_block = None;
        self.muted_through = self.muted_through.max(self.current);
    }

    /// Lets the text of later replies through.
    pub(super) fn unmute(&mut self) {
        self.is_muted = false;
    }

    fn enter(&mut self, step: ReplyStep) {
        if step != self.current {
            self.current = step;
            self.text = ReplyText::default();
            self.reasoning = ReplyText::default();
        }
        if self.is_muted {
            self.muted_through = self.muted_through.max(step);
        }
    }

    fn text_update(&mut self, step: ReplyStep, delta: String) -> Option<SessionUpdate> {
        if delta.is_empty() || step <= self.muted_through || self.is_muted {
            return None;
        }
        self.has_text_in_turn |= !delta.trim().is_empty();
        let is_next_to_other = self.open_block.replace(step).is_some_and(|open| open != step);
        let text = if is_next_to_other { format!("\n\n{delta}") } else { delta };
        Some(SessionUpdate::AgentMessageChunk {
            content: Block::text(text),
            message_id: format!("{}-{}", step.0, step.1),
        })
    }

    fn thought_update(&mut self, step: ReplyStep, delta: String) -> Option<SessionUpdate> {
        if delta.is_empty() || step <= self.muted_through || self.is_muted {
            return None;
        }
        self.open_block = None;
        let message_id = format!("{}-{}-thought", step.0, step.1);
        Some(SessionUpdate::AgentThoughtChunk { content: Block::text(delta), message_id })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chunk(step: u32, attempt: &str, delta: &str) -> Chunk {
        serde_json::from_value(json!({
            "turn": 1, "step": step, "attempt": attempt, "index": 0, "channel": "text", "delta": delta, "final": false
        }))
        .unwrap()
    }

    fn full(step: u32, text: &str) -> AiFullReceived {
        serde_json::from_value(json!({
            "call": "m1-1", "turn": 1, "step": step, "text": text, "finish_reason": "stop", "reasoning": ""
        }))
        .unwrap()
    }

    fn text(update: Option<SessionUpdate>) -> String {
        let value = serde_json::to_value(update).unwrap();
        value["content"]["text"].as_str().unwrap_or_default().to_owned()
    }

    fn texts(updates: Vec<SessionUpdate>) -> String {
        updates.into_iter().map(|update| text(Some(update))).collect()
    }

    #[test]
    fn text_of_a_reply_goes_out_once_over_attempts_and_late_chunks() {
        let mut chunks = ReplyChunks::default();
        assert_eq!(text(chunks.push_chunk(&chunk(1, "1.1", "Hel"))), "Hel");
        assert_eq!(text(chunks.push_chunk(&chunk(1, "1.2", "Hello"))), "lo", "another attempt");
        chunks.restart();
        assert_eq!(text(chunks.push_chunk(&chunk(1, "1.2", "Hello"))), "", "the text so far, after a lost connection");
        assert_eq!(texts(chunks.complete(&full(1, "Hello you"))), " you");
        assert_eq!(text(chunks.push_chunk(&chunk(1, "1.2", " late"))), "");
        assert_eq!(texts(chunks.complete(&full(2, "More"))), "\n\nMore", "two steps without a call in between");
        chunks.close_block();
        assert_eq!(texts(chunks.complete(&full(3, "Last"))), "Last");
        assert_eq!(text(chunks.end_turn(1, "Last")), "");
        assert_eq!(text(chunks.end_turn(2, "Answer")), "Answer", "no reply had text");
    }

    #[test]
    fn reply_that_was_cancelled_stays_silent_after_the_next_prompt() {
        let mut chunks = ReplyChunks::default();
        assert_eq!(text(chunks.push_chunk(&chunk(1, "1.1", "One"))), "One");
        chunks.mute();
        assert_eq!(text(chunks.push_chunk(&chunk(1, "1.1", " two"))), "");
        chunks.unmute();
        assert_eq!(text(chunks.push_chunk(&chunk(1, "1.1", " three"))), "");
        assert_eq!(texts(chunks.complete(&full(1, "One two three"))), "");
        assert_eq!(text(chunks.push_chunk(&chunk(2, "1.1", "New"))), "New");
    }
}
