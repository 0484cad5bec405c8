//! Sources of a backup: the streams of ailoop, and the streams behind its buckets and object stores, in the order in
//! which they are read.

use contract::streams::{Bucket, Objects, Queue, Stream};

/// Something that nats-server stores as one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A stream of ailoop.
    Stream(Stream),
    /// The stream behind a bucket.
    Bucket(Bucket),
    /// The stream behind an object store.
    Objects(Objects),
}

impl Source {
    /// Everything, in the order of a backup.
    ///
    /// nats-server makes a snapshot of one stream at a time, so a backup under load has each stream as of another
    /// instant. The order makes this harmless: work is read before the log, and everything that the log depends on is
    /// read after it.
    ///
    /// 1. Work items, then inputs. An item is removed when its result is an input, and an input when it is in the log.
    ///    In this order, what has left one stream is in the next one. An item or input that the log has already is
    ///    known and does nothing. Read after the log, an item could be one of a call that the log does not have, and
    ///    an input could be removed from its stream and still not be in the log.
    /// 2. The log.
    /// 3. What the log refers to or what follows from it. The index and timers are written after their commit, so every
    ///    session of the log has them. Long results, mails and charges are written before the commit that reports them.
    ///    A page is in the archive before its commits leave the log, and a body is in the store of the archive before
    ///    it leaves that of the log: hence pages, bodies of the log, bodies of the archive.
    /// 4. Dead letters, and then the bodies of everything that waits or failed.
    /// 5. The claims last. A claim for a call that the log does not know is never looked at. A call that the log has
    ///    and whose claim is missing would run once more.
    pub const ORDER: [Self; 16] = [
        Self::Stream(Stream::Model),
        Self::Stream(Stream::Tool),
        Self::Stream(Stream::Control),
        Self::Stream(Stream::Log),
        Self::Bucket(Bucket::Sessions),
        Self::Stream(Stream::Timer),
        Self::Objects(Objects::Results),
        Self::Stream(Stream::Mail),
        Self::Bucket(Bucket::Limits),
        Self::Stream(Stream::Archive),
        Self::Objects(Objects::Blobs),
        Self::Objects(Objects::Archive),
        Self::Stream(Stream::Dead),
        Self::Objects(Objects::Work),
        Self::Bucket(Bucket::Tools),
        Self::Bucket(Bucket::Claims),
    ];

    /// The name of its stream on the server.
    pub fn name(self) -> String {
        match self {
            Self::Stream(stream) => stream.name().to_owned(),
            Self::Bucket(bucket) => format!("KV_{}", bucket.name()),
            Self::Objects(store) => format!("OBJ_{}", store.name()),
        }
    }

    /// Finds a source by the name of its stream.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ORDER.into_iter().find(|source| source.name() == name)
    }

    /// Whether it has consumers that outlive their clients: how far each queue was delivered belongs to the backup.
    pub(crate) fn has_consumers(self) -> bool {
        matches!(self, Self::Stream(stream) if Queue::ALL.iter().any(|queue| queue.stream() == stream))
    }

    /// Whether its contents come back by themselves, so that nobody misses them.
    pub(crate) fn is_cache(self) -> bool {
        self == Self::Bucket(Bucket::Tools)
    }

    /// Filter of the messages that are read one by one after the snapshot; none where the snapshot is enough.
    ///
    /// nats-server reads a stream from its beginning to what was the end when the snapshot began. A message that is
    /// replaced or removed before it was read is not in the snapshot, and its replacement, which is behind that end, is
    /// not in it either. So the entry of a busy session would be missing in the index, and a session that moves to the
    /// archive would be missing in the log. Therefore, where messages replace others, those behind the end are added.
    /// From a queue a message goes only when the next stream has its result, and an object is never replaced.
    pub(crate) fn tail_filter(self) -> Option<&'static str> {
        match self {
            Self::Stream(Stream::Model | Stream::Tool | Stream::Control)
            | Self::Objects(_)
            | Self::Bucket(Bucket::Tools) => None,
            // A timer that is due cannot be stored by anybody but the server, and `ailoop repair` sets timers again.
            Self::Stream(Stream::Timer) => Some("ai_timer.set.*.*.*"),
            Self::Stream(Stream::Log | Stream::Archive | Stream::Mail | Stream::Dead)
            | Self::Bucket(Bucket::Sessions | Bucket::Claims | Bucket::Limits) => Some(">"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_has_everything_once() {
        let all = Stream::ALL.iter().map(|stream| Source::Stream(*stream));
        let all = all.chain(Bucket::ALL.iter().map(|bucket| Source::Bucket(*bucket)));
        let all: Vec<Source> = all.chain(Objects::ALL.iter().map(|store| Source::Objects(*store))).collect();
        assert_eq!(all.len(), Source::ORDER.len());
        for source in all {
            assert_eq!(Source::by_name(&source.name()), Some(source));
        }
    }

    #[test]
    fn order_reads_work_before_the_log_and_what_it_refers_to_after_it() {
        let place = |source| Source::ORDER.iter().position(|other| *other == source).unwrap();
        let log = place(Source::Stream(Stream::Log));
        for queue in [Stream::Model, Stream::Tool, Stream::Control] {
            assert!(place(Source::Stream(queue)) < log, "{queue:?}");
        }
        for later in [Source::Stream(Stream::Archive), Source::Bucket(Bucket::Claims), Source::Stream(Stream::Mail)] {
            assert!(place(later) > log, "{later:?}");
        }
        let moved =
            [Source::Stream(Stream::Archive), Source::Objects(Objects::Blobs), Source::Objects(Objects::Archive)];
        assert!(moved.map(place).is_sorted());
        assert!(place(Source::Objects(Objects::Work)) > place(Source::Stream(Stream::Dead)));
    }
}
