//! The highest sequence seen of each stream, by which an older store is noticed.

use std::sync::atomic::{AtomicU64, Ordering};

use contract::streams::Stream;

/// The highest sequence that was seen in each stream, in the order of [`Stream::ALL`]; 0: none.
#[derive(Debug)]
pub(super) struct SeenSeqs(Vec<AtomicU64>);

impl Default for SeenSeqs {
    fn default() -> Self {
        Self(Stream::ALL.iter().map(|_| AtomicU64::new(0)).collect())
    }
}

impl SeenSeqs {
    /// Notes that the stream has at least the sequence `seq`.
    pub(super) fn note(&self, stream: Stream, seq: u64) {
        if let Some(seen) = self.of(stream) {
            seen.fetch_max(seq, Ordering::Relaxed);
        }
    }

    /// As [`SeenSeqs::note`], for a stream by the server's name of it. Buckets and stores are not watched.
    pub(super) fn note_by_name(&self, name: &str, seq: u64) {
        if let Some(stream) = Stream::ALL.iter().find(|stream| stream.name() == name) {
            self.note(*stream, seq);
        }
    }

    pub(super) fn of(&self, stream: Stream) -> Option<&AtomicU64> {
        Stream::ALL.iter().position(|each| *each == stream).and_then(|position| self.0.get(position))
    }
}
