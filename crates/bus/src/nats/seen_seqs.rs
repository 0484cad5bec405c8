//! The highest sequence seen of each stream, by which an older store is noticed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use contract::streams::Stream;

/// What was seen of each stream, in the order of [`Stream::ALL`].
#[derive(Debug)]
pub(super) struct SeenSeqs(Vec<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// The highest sequence; 0: none.
    highest: AtomicU64,
    /// Whether a message got a sequence that was given out before. Later the stream may have grown past its old end.
    went_back: AtomicBool,
}

/// The highest sequence of each stream before an append.
pub(super) struct Before(Vec<u64>);

impl Default for SeenSeqs {
    fn default() -> Self {
        Self(Stream::ALL.iter().map(|_| Seen::default()).collect())
    }
}

impl SeenSeqs {
    /// Notes that the stream has at least the sequence `seq`.
    pub(super) fn note(&self, stream: Stream, seq: u64) {
        if let Some(seen) = self.of(stream) {
            seen.highest.fetch_max(seq, Ordering::Relaxed);
        }
    }

    /// The state before an append.
    pub(super) fn before(&self) -> Before {
        Before(self.0.iter().map(|seen| seen.highest.load(Ordering::Relaxed)).collect())
    }

    /// Notes the sequence of a message that was stored after `before`, in a stream by the server's name of it. Buckets
    /// and stores are not watched.
    pub(super) fn note_stored(&self, name: &str, seq: u64, before: &Before) {
        let Some(at) = Stream::ALL.iter().position(|stream| stream.name() == name) else { return };
        if let (Some(seen), Some(highest)) = (self.0.get(at), before.0.get(at)) {
            seen.went_back.fetch_or(seq <= *highest, Ordering::Relaxed);
            seen.highest.fetch_max(seq, Ordering::Relaxed);
        }
    }

    /// The highest sequence that was seen in a stream, and whether it was noticed that the stream went back.
    pub(super) fn seen(&self, stream: Stream) -> (u64, bool) {
        let seen = self.of(stream);
        seen.map_or((0, false), |seen| (seen.highest.load(Ordering::Relaxed), seen.went_back.load(Ordering::Relaxed)))
    }

    /// Whether it was noticed that a stream went back.
    pub(super) fn any_went_back(&self) -> bool {
        self.0.iter().any(|seen| seen.went_back.load(Ordering::Relaxed))
    }

    /// Lets what comes from here on count from the sequence `last`, where a stream that went back ends now.
    pub(super) fn rewind(&self, stream: Stream, last: u64) {
        if let Some(seen) = self.of(stream) {
            seen.highest.store(last, Ordering::Relaxed);
            seen.went_back.store(false, Ordering::Relaxed);
        }
    }

    fn of(&self, stream: Stream) -> Option<&Seen> {
        Stream::ALL.iter().position(|each| *each == stream).and_then(|position| self.0.get(position))
    }
}
