//! One stream: at most one message per subject, its consumer, its timers, and its recently removed messages for stale
//! reads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bus::transport::{EXPECTED_LAST, EXPECTED_OF, ReadMany, SCHEDULE, SCHEDULE_TARGET, StorageSize, TTL, header};
use bus::{Headers, Stored};
use bytes::Bytes;
use contract::Timestamp;
use contract::streams::{Kind, Queue, Stream};
use contract::subject::Subject;
use contract::subject::matches;
use tokio::time::Instant;

use crate::consumer::{Consumer, NumberedDelivery};

/// Most subjects of one read, as on a nats-server.
const READ_MANY_MAX: usize = 1_024;
/// Removed messages that stale reads can still return.
const REMOVED_MAX: usize = 1_024;

/// The code of nats-server for a wrong expected last sequence.
const WRONG_LAST_SEQUENCE: u16 = 10_071;
/// The code of nats-server for every "maximum … exceeded".
pub(crate) const MAXIMUM_EXCEEDED: u16 = 10_077;

#[derive(Debug, Clone)]
struct Entry {
    stored: Stored,
    /// Number of the change that added it.
    added: u64,
    /// Time at which it expires; none if it never does.
    expires_at: Option<Timestamp>,
}

/// A stream, its consumer and its timers.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    kind: Kind,
    filter: Option<&'static str>,
    by_subject: BTreeMap<String, Entry>,
    subjects: BTreeMap<u64, String>,
    last_seq: u64,
    changes: u64,
    /// Removed messages with the number of the change that removed them.
    removed: VecDeque<(u64, Entry)>,
    /// Target subjects by due time and subject of the scheduled message.
    schedules: BTreeMap<(Timestamp, String), String>,
    /// Expiry times of messages, with their sequences.
    expiries: BTreeSet<(Timestamp, u64)>,
    pub(crate) consumer: Consumer,
}

impl Store {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            kind: stream.kind(),
            filter: Queue::ALL.iter().find(|queue| queue.stream() == stream).and_then(|queue| queue.filter()),
            by_subject: BTreeMap::new(),
            subjects: BTreeMap::new(),
            last_seq: 0,
            changes: 0,
            removed: VecDeque::new(),
            schedules: BTreeMap::new(),
            expiries: BTreeSet::new(),
            consumer: Consumer::default(),
        }
    }

    /// The sequence of the last message that was ever stored.
    pub(crate) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Stores a message; the error is the server's code.
    pub(crate) fn append(
        &mut self,
        subject: &str,
        create: bool,
        headers: Headers,
        payload: Bytes,
        now: Timestamp,
    ) -> Result<u64, u16> {
        let expected = header(&headers, EXPECTED_LAST).and_then(|seq| seq.parse().ok()).or(create.then_some(0));
        let last = self.by_subject.get(subject).map_or(0, |entry| entry.stored.seq);
        let asked =
            header(&headers, EXPECTED_OF).map_or(last, |filter| self.last(filter, 0).map_or(0, |last| last.seq));
        if expected.is_some_and(|expected: u64| expected != asked) {
            return Err(WRONG_LAST_SEQUENCE);
        }
        if last > 0 {
            match self.kind {
                Kind::Queue | Kind::Slots => return Err(MAXIMUM_EXCEEDED),
                Kind::Schedule | Kind::MaxAge(_) | Kind::MaxAgeWithTtl(_) => self.remove(subject),
            }
        }
        if let (Kind::Schedule, Some(at)) = (self.kind, header(&headers, SCHEDULE)) {
            let due = at.strip_prefix("@at ").and_then(Timestamp::parse).unwrap_or(now);
            let target = header(&headers, SCHEDULE_TARGET).unwrap_or_default().to_owned();
            self.schedules.insert((due, subject.to_owned()), target);
        }
        self.last_seq += 1;
        self.changes += 1;
        let (seq, stored_as) = (self.last_seq, subject.to_owned());
        if self.is_taken(subject) {
            self.consumer.add(seq);
        }
        self.subjects.insert(seq, stored_as.clone());
        let expires_at = self.age_limit(&headers).map(|age| now.after(age));
        self.expiries.extend(expires_at.map(|expires_at| (expires_at, seq)));
        // A read says over which connection it was.
        let stored = Stored { subject: stored_as.clone(), seq, stored_at: now, generation: 0, headers, payload };
        self.by_subject.insert(stored_as, Entry { stored, added: self.changes, expires_at });
        Ok(seq)
    }

    /// Longest age of a message with these headers; none if it does not expire.
    fn age_limit(&self, headers: &Headers) -> Option<Duration> {
        let own = || header(headers, TTL).and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        match self.kind {
            Kind::Queue | Kind::Schedule => None,
            Kind::Slots => own(),
            Kind::MaxAge(age) => Some(age),
            Kind::MaxAgeWithTtl(age) => Some(own().unwrap_or(age).min(age)),
        }
    }

    /// Applies the passing of time: delivers due timers and removes expired messages.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        while let Some((expires_at, seq)) = self.expiries.first().copied()
            && expires_at <= now
        {
            self.expiries.remove(&(expires_at, seq));
            if let Some(subject) = self.subjects.get(&seq).cloned() {
                self.remove(&subject);
            }
        }
        while let Some(entry) = self.schedules.first_entry() {
            let (at, subject) = entry.key().clone();
            if at > now {
                return;
            }
            let target = entry.remove();
            let Some(due) = self.by_subject.get(&subject).map(|entry| entry.stored.payload.clone()) else { continue };
            self.remove(&subject);
            // The target takes the newest message, so this cannot be refused.
            let _ = self.append(&target, false, Headers::new(), due, now);
        }
    }

    /// Time at which the next timer is due.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.schedules.keys().next().map(|(at, _)| *at)
    }

    /// The last message of a filter, as of `lag` changes ago.
    pub(crate) fn last(&self, filter: &str, lag: u64) -> Option<Stored> {
        self.messages_at(filter, lag).into_iter().max_by_key(|stored| stored.seq)
    }

    /// The messages of some filters in stream order, as of `lag` changes ago.
    pub(crate) fn last_many(&self, filters: &[Subject], lag: u64) -> ReadMany {
        let mut found: Vec<Stored> = filters.iter().flat_map(|filter| self.messages_at(filter.as_str(), lag)).collect();
        if found.len() > READ_MANY_MAX {
            return ReadMany::TooMany;
        }
        found.sort_by_key(|stored| stored.seq);
        found.dedup_by_key(|stored| stored.seq);
        ReadMany::Messages(found)
    }

    /// Number of messages that match a filter, as the leader has them.
    pub(crate) fn count(&self, filter: &str) -> u64 {
        self.messages_at(filter, 0).len() as u64
    }

    /// Number of messages, and their bytes.
    pub(crate) fn size(&self) -> StorageSize {
        let bytes = |entry: &Entry| (entry.stored.subject.len() + entry.stored.payload.len()) as u64;
        let messages = self.by_subject.len() as u64;
        StorageSize { messages, bytes: self.by_subject.values().map(bytes).sum() }
    }

    fn messages_at(&self, filter: &str, lag: u64) -> Vec<Stored> {
        let as_of = self.changes.saturating_sub(lag);
        let prefix = filter.split(['*', '>']).next().unwrap_or_default();
        let live = self.by_subject.range(prefix.to_owned()..).take_while(|(subject, _)| subject.starts_with(prefix));
        let live = live.map(|(_, entry)| entry).filter(|entry| entry.added <= as_of);
        let removed = self.removed.iter().filter(|(change, entry)| entry.added <= as_of && as_of < *change);
        let removed = removed.map(|(_, entry)| entry);
        live.chain(removed)
            .map(|entry| &entry.stored)
            .filter(|stored| matches(filter, &stored.subject))
            .cloned()
            .collect()
    }

    /// Removes every message of a filter; returns how many.
    pub(crate) fn purge(&mut self, filter: &str) -> u64 {
        let found = self.messages_at(filter, 0);
        let purged: Vec<u64> = found.iter().filter_map(|stored| self.take(&stored.subject)).collect();
        if self.is_taken(filter) {
            let first = self.subjects.keys().next().copied().unwrap_or(self.last_seq + 1);
            self.consumer.follow_purge(first, |seq| self.subjects.contains_key(&seq));
        }
        // A purge of a single message reaches the consumer by its sequence.
        if let [seq] = purged[..] {
            self.consumer.remove(seq);
        }
        purged.len() as u64
    }

    /// Delivers the next item of its queue.
    pub(crate) fn next_delivery(&mut self, now: Instant) -> Option<(NumberedDelivery, Stored)> {
        let delivery = self.consumer.next(now, |seq| self.subjects.contains_key(&seq))?;
        let entry = self.by_subject.get(self.subjects.get(&delivery.seq)?)?;
        Some((delivery, entry.stored.clone()))
    }

    /// Lets its consumer begin anew with what is stored.
    pub(crate) fn reset_consumer(&mut self) {
        let taken: Vec<u64> =
            self.subjects.iter().filter(|(_, subject)| self.is_taken(subject)).map(|(seq, _)| *seq).collect();
        self.consumer.reset(taken.into_iter());
    }

    /// Whether its consumer takes messages of this subject.
    fn is_taken(&self, subject: &str) -> bool {
        self.filter.is_none_or(|filter| matches(filter, subject))
    }

    /// Removes one message by its sequence.
    pub(crate) fn delete(&mut self, seq: u64) {
        if let Some(subject) = self.subjects.get(&seq).cloned() {
            self.remove(&subject);
        }
    }

    /// Removes what was acknowledged.
    pub(crate) fn done(&mut self, seq: u64) {
        if !self.consumer.is_pending(seq) {
            return;
        }
        if let Some(subject) = self.subjects.get(&seq).cloned() {
            self.take(&subject);
        }
        self.consumer.remove(seq);
    }

    fn remove(&mut self, subject: &str) {
        if let Some(seq) = self.take(subject) {
            self.consumer.remove(seq);
        }
    }

    /// Removes a message from the stream, not from its consumer.
    fn take(&mut self, subject: &str) -> Option<u64> {
        let entry = self.by_subject.remove(subject)?;
        let seq = entry.stored.seq;
        self.subjects.remove(&seq);
        if let Some(expires_at) = entry.expires_at {
            self.expiries.remove(&(expires_at, entry.stored.seq));
        }
        self.schedules.retain(|(_, scheduled), _| scheduled != subject);
        self.changes += 1;
        self.removed.push_back((self.changes, entry));
        if self.removed.len() > REMOVED_MAX {
            self.removed.pop_front();
        }
        Some(seq)
    }
}
