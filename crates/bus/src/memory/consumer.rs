//! A durable pull consumer: who may have an item now, who holds one, what comes again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use contract::limits;
use tokio::time::Instant;

use crate::Depth;

/// When what was held comes again after a restart, whoever still works on it. The real server was seen to take two
/// seconds at least.
const RESTARTED: Duration = Duration::from_secs(1);

/// The consumer of one stream.
///
/// It numbers what it gives away, and keeps the number of each item's first delivery. Below its floor it knows of nothing
/// to be done, and so does nats-server 2.15: a hand-back of a delivery at or below the floor is passed over, and its ack
/// wait passes instead. Acknowledgements move the floor to what is still held. A purge lifts it to what it removes, which
/// can leave held items below; while the floor is above the stream's first message, a purge forgets nothing that is held.
#[derive(Debug, Clone, Default)]
pub(super) struct Consumer {
    /// Never delivered yet.
    fresh: BTreeSet<u64>,
    /// Delivered and not acknowledged. Some may be no more in the stream.
    held: BTreeMap<u64, Held>,
    /// Of what is held, what comes again whether or not its holder says that it is at it.
    returning: BTreeMap<u64, Instant>,
    /// Of what is held, what is to be delivered again, before any fresh one.
    again: VecDeque<u64>,
    deliveries: BTreeMap<u64, u64>,
    /// The number of the last delivery.
    given: u64,
    /// The last sequence that was ever delivered, or passed by.
    passed: u64,
    floor: Floor,
}

/// The last delivery that is settled, with all before it, and its sequence in the stream.
#[derive(Debug, Clone, Default)]
struct Floor {
    number: u64,
    seq: u64,
}

/// One item that was given away.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// Past it the item comes again.
    deadline: Instant,
    /// The number of its first delivery.
    first: u64,
}

/// What is given away.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given {
    /// The item.
    pub(super) seq: u64,
    /// Which delivery of the item it is.
    pub(super) delivered: u64,
    /// Which delivery of the consumer it is.
    pub(super) number: u64,
}

impl Consumer {
    /// A message came into the stream.
    pub(super) fn add(&mut self, seq: u64) {
        self.fresh.insert(seq);
    }

    /// A message left the stream, acknowledged or else because a newer one replaced it.
    pub(super) fn remove(&mut self, seq: u64) {
        let Some(Held { first: number, .. }) = self.forget(seq) else { return };
        if self.held.is_empty() {
            self.floor = Floor { number: self.given, seq: self.passed };
        } else if number == self.floor.number + 1 {
            let next = self.held.range(seq..).next();
            self.floor =
                next.map_or(Floor { number, seq }, |(seq, next)| Floor { number: next.first - 1, seq: seq - 1 });
        }
    }

    /// Messages were purged, and the first one of the stream is `first` now. What waits to be delivered again waits for its
    /// ack wait instead.
    pub(super) fn purged(&mut self, first: u64, is_there: impl Fn(u64) -> bool) {
        self.fresh.retain(|seq| is_there(*seq));
        self.passed = self.passed.max(first - 1);
        if self.floor.seq < first {
            self.floor.seq = first - 1;
            for seq in self.held.keys().copied().filter(|seq| !is_there(*seq)).collect::<Vec<_>>() {
                let number = self.forget(seq).map_or(0, |held| held.first);
                self.floor.number = self.floor.number.max(number);
            }
        }
        if self.held.is_empty() {
            self.floor = Floor { number: self.given, seq: self.passed };
        }
        self.again.clear();
    }

    fn forget(&mut self, seq: u64) -> Option<Held> {
        self.fresh.remove(&seq);
        self.returning.remove(&seq);
        self.again.retain(|waiting| *waiting != seq);
        self.deliveries.remove(&seq);
        self.held.remove(&seq)
    }

    /// Hands out the next item.
    pub(super) fn next(&mut self, now: Instant, is_there: impl Fn(u64) -> bool) -> Option<Given> {
        self.expire(now);
        let seq = loop {
            let full = self.held.len() >= limits::ACK_PENDING_MAX as usize;
            match self.again.pop_front() {
                Some(seq) if is_there(seq) => break seq,
                Some(gone) => self.remove(gone),
                None if full => return None,
                None => break self.fresh.pop_first()?,
            }
        };
        self.given += 1;
        self.passed = self.passed.max(seq);
        let number = self.given;
        let deadline = now + limits::ACK_WAIT;
        self.held.entry(seq).or_insert(Held { deadline, first: number }).deadline = deadline;
        let delivered = self.deliveries.entry(seq).or_default();
        *delivered += 1;
        Some(Given { seq, delivered: *delivered, number })
    }

    /// What is in it.
    pub(super) fn depth(&self) -> Depth {
        Depth { waiting: self.fresh.len() as u64, held: self.held.len() as u64 }
    }

    /// When the next held item comes again by itself.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.held.values().map(|held| held.deadline).chain(self.returning.values().copied()).min()
    }

    /// Whether an acknowledgement of this item means something: it is held, or was and waits to come again.
    pub(super) fn is_pending(&self, seq: u64) -> bool {
        self.held.contains_key(&seq)
    }

    /// Starts the ack wait anew.
    pub(super) fn progress(&mut self, seq: u64, now: Instant) {
        self.expire(now);
        if let Some(held) = self.held.get_mut(&seq) {
            held.deadline = now + limits::ACK_WAIT;
        }
    }

    /// The item comes again after a while, says whoever got it by delivery `number`.
    pub(super) fn retry(&mut self, seq: u64, number: u64, after: Duration, now: Instant) {
        let Some(held) = self.held.get_mut(&seq).filter(|_| number > self.floor.number) else { return };
        if after > Duration::ZERO {
            held.deadline = now + after;
        } else if !self.again.contains(&seq) {
            self.again.push_back(seq);
        }
    }

    /// Everything that is held comes again.
    pub(super) fn redeliver(&mut self, now: Instant) {
        self.returning.extend(self.held.keys().map(|seq| (*seq, now + RESTARTED)));
    }

    fn expire(&mut self, now: Instant) {
        let over = self.returning.extract_if(.., |_, deadline| *deadline <= now).map(|(seq, _)| seq);
        let mut over: Vec<u64> = over.filter(|seq| self.held.contains_key(seq)).collect();
        for (seq, held) in self.held.iter_mut().filter(|(_, held)| held.deadline <= now) {
            held.deadline = now + limits::ACK_WAIT;
            over.push(*seq);
        }
        for seq in over {
            if !self.again.contains(&seq) {
                self.again.push_back(seq);
            }
        }
    }
}
