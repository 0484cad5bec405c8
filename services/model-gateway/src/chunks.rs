//! Gathers deltas into chunks, so that viewers get a few messages per second and lane instead of one per token. What comes
//! after a pause goes out at once: only what follows it closely is gathered.

use std::time::Duration;

use contract::model::Streaming;
use tokio::time::Instant;

/// Bytes of one chunk: far below what a server lets through.
const CHUNK_BYTES_MAX: usize = 64 << 10;

/// What a piece belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// The reply's text.
    Text,
    /// Its reasoning.
    Reasoning,
    /// The arguments of one of its calls.
    Call(u32),
}

/// Gathers pieces of one lane at a time; another lane's piece lets the gathered ones go first.
#[derive(Debug)]
pub struct Chunker {
    pause: Duration,
    bytes: usize,
    lane: Lane,
    gathered: String,
    /// Before that nothing goes out but what is too much to be gathered.
    not_before: Instant,
}

impl Chunker {
    /// A chunker with a session's wishes.
    pub fn new(streaming: &Streaming) -> Self {
        Self {
            pause: Duration::from_millis(streaming.chunk_ms),
            bytes: streaming.chunk_bytes.clamp(1, CHUNK_BYTES_MAX),
            lane: Lane::Text,
            gathered: String::new(),
            not_before: Instant::now(),
        }
    }

    /// Takes a piece in and appends what is to go out now to `out`.
    pub fn add(&mut self, lane: Lane, piece: &str, out: &mut Vec<(Lane, String)>) {
        if piece.is_empty() {
            return;
        }
        if lane != self.lane {
            self.flush(out);
            self.lane = lane;
        }
        self.gathered.push_str(piece);
        if self.gathered.len() >= self.bytes {
            self.flush(out);
        }
    }

    /// All is gathered that came together: appends it to `out` where nothing went out lately.
    pub fn settle(&mut self, out: &mut Vec<(Lane, String)>) {
        if !self.gathered.is_empty() && Instant::now() >= self.not_before {
            self.flush(out);
        }
    }

    /// When the gathered pieces go out at the latest; none while there are none.
    pub fn due(&self) -> Option<Instant> {
        (!self.gathered.is_empty()).then_some(self.not_before)
    }

    /// Appends everything gathered to `out`, cut where it is too long for one message.
    pub fn flush(&mut self, out: &mut Vec<(Lane, String)>) {
        self.not_before = Instant::now() + self.pause;
        let mut rest = std::mem::take(&mut self.gathered);
        while rest.len() > CHUNK_BYTES_MAX {
            let tail = rest.split_off(rest.floor_char_boundary(CHUNK_BYTES_MAX));
            out.push((self.lane, std::mem::replace(&mut rest, tail)));
        }
        if !rest.is_empty() {
            out.push((self.lane, rest));
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
        chunker.add(Lane::Reasoning, "h", &mut out);
        chunker.add(Lane::Text, "a", &mut out);
        chunker.add(Lane::Text, "", &mut out);
        chunker.add(Lane::Text, "b", &mut out);
        assert!(chunker.due().is_some());
        chunker.add(Lane::Text, "cd", &mut out);
        assert!(chunker.due().is_none());
        chunker.add(Lane::Call(1), "{", &mut out);
        chunker.flush(&mut out);
        chunker.flush(&mut out);
        let out: Vec<_> = out.iter().map(|(lane, text)| (*lane, text.as_str())).collect();
        assert_eq!(out, [(Lane::Reasoning, "h"), (Lane::Text, "abcd"), (Lane::Call(1), "{")]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_after_a_pause_goes_out_at_once_and_what_follows_is_gathered() {
        let mut chunker = Chunker::new(&Streaming { chunk_ms: 20, ..Streaming::default() });
        let mut said = async |piece: &str, later: u64| {
            tokio::time::advance(Duration::from_millis(later)).await;
            let mut out = Vec::new();
            chunker.add(Lane::Text, piece, &mut out);
            chunker.settle(&mut out);
            (out.into_iter().map(|(_, text)| text).collect::<String>(), chunker.due())
        };
        assert_eq!(said("a", 0).await, ("a".to_owned(), None));
        let (nothing, due) = said("b", 5).await;
        assert_eq!((nothing.as_str(), due), ("", Some(Instant::now() + Duration::from_millis(15))));
        assert_eq!(said("c", 5).await.0, "");
        assert_eq!(said("d", 10).await, ("bcd".to_owned(), None));
        assert_eq!(said("e", 100).await, ("e".to_owned(), None));
    }

    #[test]
    fn a_huge_piece_is_cut_between_characters() {
        let mut chunker = Chunker::new(&Streaming::default());
        let mut out = Vec::new();
        let text = format!("a{}", "\u{e4}".repeat(CHUNK_BYTES_MAX));
        chunker.add(Lane::Text, &text, &mut out);
        assert!(out.iter().all(|(_, piece)| piece.len() <= CHUNK_BYTES_MAX));
        assert_eq!(out.into_iter().map(|(_, piece)| piece).collect::<String>(), text);
    }
}
