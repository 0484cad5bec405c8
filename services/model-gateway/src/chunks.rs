//! Buffers deltas into chunks, so that viewers get a few messages per second instead of one per token. A delta after a
//! pause is published at once; only deltas that follow closely are buffered.

use std::time::Duration;

use contract::model::Streaming;
use tokio::time::Instant;

/// Maximum bytes of one chunk, far below the maximum payload of a NATS server.
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// The part of a reply that a chunk belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkKind {
    Text,
    Reasoning,
    /// Arguments of the call in this slot.
    Call(u32),
}

/// Buffers text of one kind at a time. Text of another kind flushes the buffer first.
#[derive(Debug)]
pub(crate) struct Chunker {
    pause: Duration,
    max_bytes: usize,
    kind: ChunkKind,
    buffer: String,
    /// Before this time only a full buffer is flushed.
    next_flush: Instant,
}

impl Chunker {
    /// A chunker with the settings of a session.
    pub(crate) fn new(streaming: &Streaming) -> Self {
        Self {
            pause: Duration::from_millis(streaming.chunk_ms),
            max_bytes: streaming.chunk_bytes.clamp(1, CHUNK_BYTES_MAX),
            kind: ChunkKind::Text,
            buffer: String::new(),
            next_flush: Instant::now(),
        }
    }

    /// Adds text, and appends chunks that are ready to `out`.
    pub(crate) fn add(&mut self, kind: ChunkKind, text: &str, out: &mut Vec<(ChunkKind, String)>) {
        if text.is_empty() {
            return;
        }
        if kind != self.kind {
            self.flush(out);
            self.kind = kind;
        }
        self.buffer.push_str(text);
        if self.buffer.len() >= self.max_bytes {
            self.flush(out);
        }
    }

    /// Appends the buffer to `out` unless a chunk was published lately.
    pub(crate) fn flush_if_due(&mut self, out: &mut Vec<(ChunkKind, String)>) {
        if !self.buffer.is_empty() && Instant::now() >= self.next_flush {
            self.flush(out);
        }
    }

    /// Returns the time by which the buffer must be flushed; `None` if it is empty.
    pub(crate) fn flush_deadline(&self) -> Option<Instant> {
        (!self.buffer.is_empty()).then_some(self.next_flush)
    }

    /// Appends the buffer to `out`, split into chunks of at most [`CHUNK_BYTES_MAX`].
    pub(crate) fn flush(&mut self, out: &mut Vec<(ChunkKind, String)>) {
        self.next_flush = Instant::now() + self.pause;
        let mut rest = std::mem::take(&mut self.buffer);
        while rest.len() > CHUNK_BYTES_MAX {
            let tail = rest.split_off(rest.floor_char_boundary(CHUNK_BYTES_MAX));
            out.push((self.kind, std::mem::replace(&mut rest, tail)));
        }
        if !rest.is_empty() {
            out.push((self.kind, rest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_several_kinds_added_chunks_split_by_kind_and_size() {
        let streaming = Streaming { chunk_bytes: 4, ..Streaming::default() };
        let mut chunker = Chunker::new(&streaming);
        let mut out = Vec::new();
        chunker.add(ChunkKind::Reasoning, "h", &mut out);
        chunker.add(ChunkKind::Text, "a", &mut out);
        chunker.add(ChunkKind::Text, "", &mut out);
        chunker.add(ChunkKind::Text, "b", &mut out);
        assert!(chunker.flush_deadline().is_some());
        chunker.add(ChunkKind::Text, "cd", &mut out);
        assert!(chunker.flush_deadline().is_none());
        chunker.add(ChunkKind::Call(1), "{", &mut out);
        chunker.flush(&mut out);
        chunker.flush(&mut out);
        let out: Vec<_> = out.iter().map(|(kind, text)| (*kind, text.as_str())).collect();
        assert_eq!(out, [(ChunkKind::Reasoning, "h"), (ChunkKind::Text, "abcd"), (ChunkKind::Call(1), "{")]);
    }

    #[tokio::test(start_paused = true)]
    async fn text_after_a_pause_is_flushed_at_once_and_later_text_is_buffered() {
        let mut chunker = Chunker::new(&Streaming { chunk_ms: 20, ..Streaming::default() });
        let mut push = async |text: &str, later: u64| {
            tokio::time::advance(Duration::from_millis(later)).await;
            let mut out = Vec::new();
            chunker.add(ChunkKind::Text, text, &mut out);
            chunker.flush_if_due(&mut out);
            (out.into_iter().map(|(_, text)| text).collect::<String>(), chunker.flush_deadline())
        };
        assert_eq!(push("a", 0).await, ("a".to_owned(), None));
        let (nothing, due) = push("b", 5).await;
        assert_eq!((nothing.as_str(), due), ("", Some(Instant::now() + Duration::from_millis(15))));
        assert_eq!(push("c", 5).await.0, "");
        assert_eq!(push("d", 10).await, ("bcd".to_owned(), None));
        assert_eq!(push("e", 100).await, ("e".to_owned(), None));
    }

    #[test]
    fn text_over_the_chunk_limit_is_split_between_characters() {
        let mut chunker = Chunker::new(&Streaming::default());
        let mut out = Vec::new();
        let text = format!("a{}", "\u{e4}".repeat(CHUNK_BYTES_MAX));
        chunker.add(ChunkKind::Text, &text, &mut out);
        assert!(out.iter().all(|(_, text)| text.len() <= CHUNK_BYTES_MAX));
        assert_eq!(out.into_iter().map(|(_, text)| text).collect::<String>(), text);
    }
}
