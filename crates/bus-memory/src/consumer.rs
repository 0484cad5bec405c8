//! A durable pull consumer: which items wait, which are held, and which are delivered again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bus::Depth;
use contract::limits;
use tokio::time::Instant;

/// Pause before an item that was held at a restart is delivered again, even if its holder still works on it. A real
/// server takes two seconds at least.
const RESTART_REDELIVERY_AFTER: Duration = Duration::from_secs(1);

/// The consumer of one stream.
///
/// It numbers its deliveries, and keeps the number of each item's first delivery. Everything at or below its floor
/// counts as settled, as in nats-server 2.15: a negative acknowledgement there is ignored, and the item's ack wait has
/// to pass. Acknowledgements move the floor up to the items that are still held. A purge lifts it to what the purge
/// removes, which can leave held items below; while the floor is above the stream's first message, a purge forgets no
/// held item.
#[derive(Debug, Clone, Default)]
pub(crate) struct Consumer {
    /// Items that were never delivered.
    fresh: BTreeSet<u64>,
    /// Items that were delivered and not acknowledged. Some may have left the stream.
    held: BTreeMap<u64, Held>,
    /// Held items that are delivered again at this instant, even if their holders report progress.
    restart_deadlines: BTreeMap<u64, Instant>,
    /// Held items that are delivered again, before any fresh one.
    redeliveries: VecDeque<u64>,
    /// Number of deliveries of each item, by sequence.
    deliveries: BTreeMap<u64, u64>,
    /// The number of the last delivery.
    last_number: u64,
    /// The highest sequence that was delivered or purged.
    last_seq: u64,
    floor: Floor,
    /// End of the pause of deliveries, if any.
    paused_until: Option<Instant>,
}

/// The last delivery of the settled ones without a gap, and its sequence in the stream.
#[derive(Debug, Clone, Default)]
struct Floor {
    number: u64,
    seq: u64,
}

/// The delivery of a held item.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// Time at which the item is redelivered.
    deadline: Instant,
    /// The number of its first delivery.
    first: u64,
}

/// A delivery with its number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberedDelivery {
    /// The sequence of the item.
    pub(crate) seq: u64,
    /// Number of the delivery of the item, from 1.
    pub(crate) delivered: u64,
    /// Number of the delivery of the consumer, from 1.
    pub(crate) number: u64,
}

impl Consumer {
    /// Adds a message that was stored.
    pub(crate) fn add(&mut self, seq: u64) {
        self.fresh.insert(seq);
    }

    /// Removes a message that left the stream, since it was acknowledged or replaced.
    pub(crate) fn remove(&mut self, seq: u64) {
        let Some(Held { first: number, .. }) = self.forget(seq) else { return };
        if self.held.is_empty() {
            self.floor = Floor { number: self.last_number, seq: self.last_seq };
        } else if number == self.floor.number + 1 {
            let next = self.held.range(seq..).next();
            self.floor =
                next.map_or(Floor { number, seq }, |(seq, next)| Floor { number: next.first - 1, seq: seq - 1 });
        }
    }

    /// Follows a purge, after which the first message of the stream is `first`. Items that were about to be delivered
    /// again wait for their ack wait instead.
    pub(crate) fn follow_purge(&mut self, first: u64, is_there: impl Fn(u64) -> bool) {
        self.fresh.retain(|seq| is_there(*seq));
        self.last_seq = self.last_seq.max(first - 1);
        if self.floor.seq < first {
            self.floor.seq = first - 1;
            for seq in self.held.keys().copied().filter(|seq| !is_there(*seq)).collect::<Vec<_>>() {
                let number = self.forget(seq).map_or(0, |held| held.first);
                self.floor.number = self.floor.number.max(number);
            }
        }
        if self.held.is_empty() {
            self.floor = Floor { number: self.last_number, seq: self.last_seq };
        }
        self.redeliveries.clear();
    }

    fn forget(&mut self, seq: u64) -> Option<Held> {
        self.fresh.remove(&seq);
        self.restart_deadlines.remove(&seq);
        self.redeliveries.retain(|waiting| *waiting != seq);
        self.deliveries.remove(&seq);
        self.held.remove(&seq)
    }

    /// Stops deliveries until then.
    pub(crate) fn pause(&mut self, until: Option<Instant>) {
        self.paused_until = until;
    }

    /// Forgets every delivery: these items, all that the stream has, are delivered as for the first time.
    pub(crate) fn reset(&mut self, stored: impl Iterator<Item = u64>) {
        *self = Self { fresh: stored.collect(), paused_until: self.paused_until, ..Self::default() };
    }

    /// Delivers the next item.
    pub(crate) fn next(&mut self, now: Instant, is_there: impl Fn(u64) -> bool) -> Option<NumberedDelivery> {
        if self.paused_until.is_some_and(|until| now < until) {
            return None;
        }
        self.expire(now);
        let seq = loop {
            let full = self.held.len() >= limits::ACK_PENDING_MAX as usize;
            match self.redeliveries.pop_front() {
                Some(seq) if is_there(seq) => break seq,
                Some(gone) => self.remove(gone),
                None if full => return None,
                None => break self.fresh.pop_first()?,
            }
        };
        self.last_number += 1;
        self.last_seq = self.last_seq.max(seq);
        let number = self.last_number;
        let deadline = now + limits::ACK_WAIT;
        self.held.entry(seq).or_insert(Held { deadline, first: number }).deadline = deadline;
        let delivered = self.deliveries.entry(seq).or_default();
        *delivered += 1;
        Some(NumberedDelivery { seq, delivered: *delivered, number })
    }

    /// Items that wait, and items that are held.
    pub(crate) fn depth(&self) -> Depth {
        Depth { waiting: self.fresh.len() as u64, held: self.held.len() as u64 }
    }

    /// Returns the time of the next redelivery of a held item.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let held = self.held.values().map(|held| held.deadline).chain(self.restart_deadlines.values().copied()).min();
        // While it is paused nothing is delivered earlier.
        let paused_until = self.paused_until.filter(|until| *until > Instant::now());
        held.max(paused_until.filter(|_| held.is_some() || !self.fresh.is_empty()))
    }

    /// Whether an acknowledgement of this item has an effect: the item was delivered and not acknowledged.
    pub(crate) fn is_pending(&self, seq: u64) -> bool {
        self.held.contains_key(&seq)
    }

    /// Starts the ack wait anew.
    pub(crate) fn progress(&mut self, seq: u64, now: Instant) {
        self.expire(now);
        if let Some(held) = self.held.get_mut(&seq) {
            held.deadline = now + limits::ACK_WAIT;
        }
    }

    /// Delivers the item again after a while, as the receiver of delivery `number` asks.
    pub(crate) fn retry(&mut self, seq: u64, number: u64, after: Duration, now: Instant) {
        let Some(held) = self.held.get_mut(&seq).filter(|_| number > self.floor.number) else { return };
        if after > Duration::ZERO {
            held.deadline = now + after;
        } else if !self.redeliveries.contains(&seq) {
            self.redeliveries.push_back(seq);
        }
    }

    /// Delivers every held item again, as after a restart.
    pub(crate) fn redeliver_all(&mut self, now: Instant) {
        self.restart_deadlines.extend(self.held.keys().map(|seq| (*seq, now + RESTART_REDELIVERY_AFTER)));
    }

    fn expire(&mut self, now: Instant) {
        let over = self.restart_deadlines.extract_if(.., |_, deadline| *deadline <= now).map(|(seq, _)| seq);
        let mut over: Vec<u64> = over.filter(|seq| self.held.contains_key(seq)).collect();
        for (seq, held) in self.held.iter_mut().filter(|(_, held)| held.deadline <= now) {
            held.deadline = now + limits::ACK_WAIT;
            over.push(*seq);
        }
        for seq in over {
            if !self.redeliveries.contains(&seq) {
                self.redeliveries.push_back(seq);
            }
        }
    }
}
