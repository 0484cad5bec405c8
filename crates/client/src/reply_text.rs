//! The text of one reply, for readers that cannot take text back.

use crate::event::{AttemptNumber, ChunkChannel, ReplyChunk};

/// Turns the chunks of a reply into text that is yielded once. A reply may be streamed by several attempts.
#[derive(Debug, Default)]
pub(crate) struct TextOfReply {
    attempt: AttemptNumber,
    /// Index of the next chunk.
    next_index: u64,
    streamed: String,
    /// Whether chunks were lost. The rest then comes with the complete reply.
    has_gap: bool,
    yielded: String,
}

impl TextOfReply {
    /// Whether some text was yielded.
    pub(crate) fn has_begun(&self) -> bool {
        !self.yielded.is_empty()
    }

    /// Takes a chunk, and returns the text that is new. A snapshot has all the text so far.
    pub(crate) fn push(&mut self, chunk: &ReplyChunk, is_snapshot: bool) -> String {
        let attempt = chunk.attempt_number();
        if attempt < self.attempt {
            return String::new();
        }
        if attempt > self.attempt {
            *self = Self { attempt, yielded: std::mem::take(&mut self.yielded), ..Self::default() };
        }
        if chunk.index < self.next_index {
            return String::new();
        }
        if is_snapshot {
            self.streamed.clone_from(&chunk.delta);
            self.has_gap = false;
        } else if chunk.index != self.next_index {
            self.has_gap = true;
        } else if chunk.channel == ChunkChannel::Text {
            self.streamed += &chunk.delta;
        }
        self.next_index = chunk.index + 1;
        if self.has_gap {
            return String::new();
        }
        let Some(new) = self.streamed.strip_prefix(self.yielded.as_str()) else { return String::new() };
        let new = new.to_owned();
        self.yielded += &new;
        new
    }

    /// Takes the complete reply, and returns what was not yielded. A reply that differs is a paragraph of its own.
    pub(crate) fn finish(&mut self, complete: &str) -> String {
        let rest = match complete.strip_prefix(self.yielded.as_str()) {
            Some(rest) => rest.to_owned(),
            // A signal at the end of a reply may be cut off after some of the white space before it.
            None if complete.trim_end() == self.yielded.trim_end() => String::new(),
            None => format!("\n\n{complete}"),
        };
        complete.clone_into(&mut self.yielded);
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(attempt: &str, index: u64, delta: &str) -> ReplyChunk {
        let data = serde_json::json!({
            "turn": 1, "step": 1, "attempt": attempt, "index": index, "channel": "text", "delta": delta, "final": false,
        });
        serde_json::from_value(data).unwrap()
    }

    /// Pushes chunks of attempt, index, text and whether it is a snapshot; then the complete reply.
    fn check(chunks: &[(&str, u64, &str, bool)], complete: &str, expected: &[&str]) {
        let mut reply = TextOfReply::default();
        let mut texts: Vec<String> = chunks
            .iter()
            .map(|(attempt, index, delta, is_snapshot)| reply.push(&chunk(attempt, *index, delta), *is_snapshot))
            .collect();
        texts.push(reply.finish(complete));
        assert_eq!(texts, expected, "{chunks:?}");
    }

    #[test]
    fn text_is_yielded_once_whatever_comes() {
        check(&[("1.1", 0, "a", false), ("1.1", 1, "b", false)], "abc", &["a", "b", "c"]);
        // Repeated chunks, and an older attempt.
        check(&[("1.1", 0, "a", false), ("1.1", 0, "a", false), ("1.0", 1, "x", false)], "a", &["a", "", "", ""]);
        // A lost chunk: the rest comes with the complete reply.
        check(&[("1.1", 0, "a", false), ("1.1", 2, "c", false)], "abc", &["a", "", "bc"]);
        // After a new connection, a snapshot has all the text so far.
        check(
            &[("1.1", 0, "a", false), ("1.1", 2, "abc", true), ("1.1", 3, "d", false)],
            "abcd",
            &["a", "bc", "d", ""],
        );
        // A second attempt that says the same, and goes on.
        check(&[("1.1", 0, "ab", false), ("1.2", 0, "a", false), ("1.2", 1, "bc", false)], "abc", &["ab", "", "c", ""]);
        // A tenth attempt is newer than the second one.
        check(&[("1.2", 0, "a", false), ("1.10", 0, "ab", false)], "ab", &["a", "b", ""]);
        // One that says something else.
        check(&[("1.1", 0, "ab", false), ("1.2", 0, "x", false)], "xy", &["ab", "", "\n\nxy"]);
        // White space before a signal is cut off.
        check(&[("1.1", 0, "ab \n", false)], "ab", &["ab \n", ""]);
    }
}
