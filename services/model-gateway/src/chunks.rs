//! Gathers deltas into chunks, so that viewers get a few messages per second and lane instead of one per token. What comes
//! after a pause goes out at once: only what follows it closely is gathered.

use std::time::Duration;

use contract::model::Streaming;
use tokio::time::Instant;

/// Bytes of one chunk: far below what a server lets through.
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// What a piece belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChunkKind {
    /// The reply's text.
    Text,
    /// Its reasoning.
    Reasoning,
    /// The arguments of one of its calls.
    Call(u32),
}

/// Gathers pieces of one lane at a time; another lane's piece lets the gathered ones go first.
#[derive(Debug)]
pub(crate) struct Chunker {
    pause: Duration,
    max_bytes: usize,
    kind: ChunkKind,
    buffer: String,
    /// Before that nothing goes out but what is too much to be gathered.
    next_flush: Instant,
}

impl Chunker {
    /// A chunker with a session's wishes.
    pub(crate) fn new(streaming: &Streaming) -> Self {
        Self {
            pause: Duration::from_millis(streaming.chunk_ms),
            max_bytes: streaming.chunk_bytes.clamp(1, CHUNK_BYTES_MAX),
            kind: ChunkKind::Text,
            buffer: String::new(),
            next_flush: Instant::now(),
        }
    }

    /// Takes a piece in and appends what is to go out now to `out`.
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

    /// All is gathered that came together: appends it to `out` where nothing went out lately.
    pub(crate) fn flush_if_due(&mut self, out: &mut Vec<(ChunkKind, String)>) {
        if !self.buffer.is_empty() && Instant::now() >= self.next_flush {
            self.flush(out);
        }
    }

    /// When the gathered pieces go out at the latest; none while there are none.
    pub(crate) fn flush_deadline(&self) -> Option<Instant> {
        (!self.buffer.is_empty()).then_some(self.next_flush)
    }

    /// Appends everything gathered to `out`, cut where it is too long for one message.
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
    fn pieces_are_gathered_by_lane_and_size() {
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
    async fn what_comes_after_a_pause_goes_out_at_once_and_what_follows_is_gathered() {
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
    fn a_huge_piece_is_cut_between_characters() {
        let mut chunker = Chunker::new(&Streaming::default());
        let mut out = Vec::new();
        let text = format!("a{}", "\u{e4}".repeat(CHUNK_BYTES_MAX));
        chunker.add(ChunkKind::Text, &text, &mut out);
        assert!(out.iter().all(|(_, text)| text.len() <= CHUNK_BYTES_MAX));
        assert_eq!(out.into_iter().map(|(_, text)| text).collect::<String>(), text);
    }
}
