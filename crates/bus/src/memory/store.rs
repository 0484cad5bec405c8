//! One stream: at most one message per subject, its consumer, its timers, and its recent past for stale reads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use contract::Timestamp;
use contract::streams::{Kind, Queue, Stream};
use contract::subject::matches;
use tokio::time::Instant;

use super::consumer::{Consumer, Given};
use crate::timer::{SCHEDULE, SCHEDULE_TARGET};
use crate::transport::{EXPECTED_LAST, EXPECTED_OF, ReadMany, StorageSize, TTL, header};
use crate::{Headers, Stored};

/// Subjects of one read, as on a nats-server.
pub(super) const READ_MANY_MAX: usize = 1_024;
/// Removed messages that stale reads can still show.
const PAST_MAX: usize = 1_024;

/// Why a message is not stored.
pub(super) const WRONG_LAST_SEQUENCE: u16 = 10_071;
/// The code for every "maximum … exceeded".
pub(super) const MAXIMUM_EXCEEDED: u16 = 10_077;

#[derive(Debug, Clone)]
struct Entry {
    stored: Stored,
    /// The stream's change that added it.
    added: u64,
    /// When it is too old to be kept.
    until: Option<Timestamp>,
}

/// A stream.
#[derive(Debug, Clone)]
pub(super) struct Store {
    kind: Kind,
    filter: Option<&'static str>,
    by_subject: BTreeMap<String, Entry>,
    subjects: BTreeMap<u64, String>,
    last_seq: u64,
    changes: u64,
    /// Removed messages with the change that removed them.
    past: VecDeque<(u64, Entry)>,
    /// When a scheduled message is due.
    schedules: BTreeMap<(Timestamp, String), String>,
    /// When each message that does not live for ever ends.
    ends: BTreeSet<(Timestamp, u64)>,
    pub(super) consumer: Consumer,
}

impl Store {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            kind: stream.kind(),
            filter: Queue::ALL.iter().find(|queue| queue.stream() == stream).and_then(|queue| queue.filter()),
            by_subject: BTreeMap::new(),
            subjects: BTreeMap::new(),
            last_seq: 0,
            changes: 0,
            past: VecDeque::new(),
            schedules: BTreeMap::new(),
            ends: BTreeSet::new(),
            consumer: Consumer::default(),
        }
    }

    /// The sequence of the last message that was ever stored.
    pub(super) fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// Stores a message; the error is the server's code.
    pub(super) fn append(
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
        if self.filter.is_none_or(|filter| matches(filter, subject)) {
            self.consumer.add(seq);
        }
        self.subjects.insert(seq, stored_as.clone());
        let until = self.life(&headers).map(|life| now.after(life));
        self.ends.extend(until.map(|until| (until, seq)));
        let stored = Stored { subject: stored_as.clone(), seq, stored_at: now, headers, payload };
        self.by_subject.insert(stored_as, Entry { stored, added: self.changes, until });
        Ok(seq)
    }

    /// How long a message with these headers is kept.
    fn life(&self, headers: &Headers) -> Option<Duration> {
        let own = || header(headers, TTL).and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        match self.kind {
            Kind::Queue | Kind::Schedule => None,
            Kind::Slots => own(),
            Kind::MaxAge(age) => Some(age),
            Kind::MaxAgeWithTtl(age) => Some(own().unwrap_or(age).min(age)),
        }
    }

    /// Lets every due message arrive, and removes what is too old.
    pub(super) fn fire(&mut self, now: Timestamp) {
        while let Some((until, seq)) = self.ends.first().copied()
            && until <= now
        {
            self.ends.remove(&(until, seq));
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

    /// When the next timer is due.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.schedules.keys().next().map(|(at, _)| *at)
    }

    /// The last message of a filter, as of `lag` changes ago.
    pub(super) fn last(&self, filter: &str, lag: u64) -> Option<Stored> {
        self.view(filter, lag).into_iter().max_by_key(|stored| stored.seq)
    }

    /// The messages of a filter in stream order, as of `lag` changes ago.
    pub(super) fn last_many(&self, filter: &str, lag: u64) -> ReadMany {
        let mut found = self.view(filter, lag);
        if found.len() > READ_MANY_MAX {
            return ReadMany::TooMany;
        }
        found.sort_by_key(|stored| stored.seq);
        ReadMany::Messages(found)
    }

    /// Messages of a filter, as the leader has them.
    pub(super) fn count(&self, filter: &str) -> u64 {
        self.view(filter, 0).len() as u64
    }

    /// Messages and their bytes.
    pub(super) fn size(&self) -> StorageSize {
        let bytes = |entry: &Entry| (entry.stored.subject.len() + entry.stored.payload.len()) as u64;
        let messages = self.by_subject.len() as u64;
        StorageSize { messages, bytes: self.by_subject.values().map(bytes).sum() }
    }

    fn view(&self, filter: &str, lag: u64) -> Vec<Stored> {
        let as_of = self.changes.saturating_sub(lag);
        let prefix = filter.split(['*', '>']).next().unwrap_or_default();
        let live = self.by_subject.range(prefix.to_owned()..).take_while(|(subject, _)| subject.starts_with(prefix));
        let live = live.map(|(_, entry)| entry).filter(|entry| entry.added <= as_of);
        let past = self.past.iter().filter(|(removed, entry)| entry.added <= as_of && as_of < *removed);
        let past = past.map(|(_, entry)| entry);
        live.chain(past).map(|entry| &entry.stored).filter(|stored| matches(filter, &stored.subject)).cloned().collect()
    }

    /// Removes every message of a filter; returns how many.
    pub(super) fn purge(&mut self, filter: &str) -> u64 {
        let found = self.view(filter, 0);
        let purged: Vec<u64> = found.iter().filter_map(|stored| self.take(&stored.subject)).collect();
        if self.filter.is_none_or(|taken| matches(taken, filter)) {
            let first = self.subjects.keys().next().copied().unwrap_or(self.last_seq + 1);
            self.consumer.purged(first, |seq| self.subjects.contains_key(&seq));
        }
        // A single one is known by its sequence.
        if let [seq] = purged[..] {
            self.consumer.remove(seq);
        }
        purged.len() as u64
    }

    /// Gives the next item of its queue away.
    pub(super) fn give(&mut self, now: Instant) -> Option<(Given, Stored)> {
        let given = self.consumer.next(now, |seq| self.subjects.contains_key(&seq))?;
        let entry = self.by_subject.get(self.subjects.get(&given.seq)?)?;
        Some((given, entry.stored.clone()))
    }

    /// Removes one message.
    pub(super) fn delete(&mut self, seq: u64) {
        if let Some(subject) = self.subjects.get(&seq).cloned() {
            self.remove(&subject);
        }
    }

    /// Removes what was acknowledged.
    pub(super) fn done(&mut self, seq: u64) {
        if self.consumer.is_pending(seq)
            && let Some(subject) = self.subjects.get(&seq).cloned()
        {
            self.take(&subject);
        }
        self.consumer.remove(seq);
    }

    fn remove(&mut self, subject: &str) {
        if let Some(seq) = self.take(subject) {
            self.consumer.remove(seq);
        }
    }

    /// Takes a message out of the stream, not out of its consumer.
    fn take(&mut self, subject: &str) -> Option<u64> {
        let entry = self.by_subject.remove(subject)?;
        let seq = entry.stored.seq;
        self.subjects.remove(&seq);
        if let Some(until) = entry.until {
            self.ends.remove(&(until, entry.stored.seq));
        }
        self.schedules.retain(|(_, scheduled), _| scheduled != subject);
        self.changes += 1;
        self.past.push_back((self.changes, entry));
        if self.past.len() > PAST_MAX {
            self.past.pop_front();
        }
        Some(seq)
    }
}
