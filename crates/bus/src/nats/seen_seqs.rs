//! The highest sequence seen of each stream, by which an older store is noticed.

use std::sync::atomic::{AtomicU64, Ordering};

use contract::streams::Stream;

const STREAMS: usize = Stream::ALL.len();

/// Sequences that were seen of each stream, in the order of [`Stream::ALL`].
#[derive(Debug, Default)]
pub(super) struct SeenSeqs {
    streams: [SeenStream; STREAMS],
    /// Number of handled rewinds. A write that was sent before the last one proves nothing.
    rewinds: AtomicU64,
}

#[derive(Debug, Default)]
struct SeenStream {
    /// The highest sequence; 0: none.
    highest: AtomicU64,
    /// The highest sequence when a message got one that was given out before; 0: none did. Later the stream may have
    /// grown past its old end.
    went_back_from: AtomicU64,
}

/// The highest sequence of each stream before an append.
pub(super) struct Before {
    highest: [u64; STREAMS],
    rewinds: u64,
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
        // First: whoever knows the last rewind has the sequences after it.
        let rewinds = self.rewinds.load(Ordering::Acquire);
        Before { highest: self.streams.each_ref().map(|seen| seen.highest.load(Ordering::Relaxed)), rewinds }
    }

    /// Notes the sequence of a message that was stored after `before`, in a stream by the server's name of it. Buckets
    /// and stores are not watched.
    pub(super) fn note_stored(&self, name: &str, seq: u64, before: &Before) {
        let Some(at) = Stream::ALL.iter().position(|stream| stream.name() == name) else { return };
        if let (Some(seen), Some(highest)) = (self.streams.get(at), before.highest.get(at)) {
            if seq <= *highest && before.rewinds == self.rewinds.load(Ordering::Relaxed) {
                let _first = seen.went_back_from.compare_exchange(0, *highest, Ordering::Relaxed, Ordering::Relaxed);
            }
            seen.highest.fetch_max(seq, Ordering::Relaxed);
        }
    }

    /// The highest sequence that was seen in a stream, and the one from which it went back, 0 if that was not noticed.
    pub(super) fn seen(&self, stream: Stream) -> (u64, u64) {
        let seen = self.of(stream);
        seen.map_or((0, 0), |seen| (seen.highest.load(Ordering::Relaxed), seen.went_back_from.load(Ordering::Relaxed)))
    }

    /// Whether it was noticed that a stream went back.
    pub(super) fn any_went_back(&self) -> bool {
        self.streams.iter().any(|seen| seen.went_back_from.load(Ordering::Relaxed) > 0)
    }

    /// Lets what comes from here on count from the sequence `last`, where a stream that went back ends now.
    pub(super) fn rewind(&self, stream: Stream, last: u64) {
        if let Some(seen) = self.of(stream) {
            seen.highest.store(last, Ordering::Relaxed);
            seen.went_back_from.store(0, Ordering::Relaxed);
            self.rewinds.fetch_add(1, Ordering::Release);
        }
    }

    fn of(&self, stream: Stream) -> Option<&SeenStream> {
        Stream::ALL.iter().position(|each| *each == stream).and_then(|position| self.streams.get(position))
    }
}
