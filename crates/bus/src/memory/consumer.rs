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
#[derive(Debug, Default)]
pub(super) struct Consumer {
    /// Never delivered yet.
    fresh: BTreeSet<u64>,
    /// Delivered and not acknowledged, each with its next deadline; past it the item comes again.
    held: BTreeMap<u64, Instant>,
    /// Of what is held, what comes again whether or not its holder says that it is at it.
    returning: BTreeMap<u64, Instant>,
    /// To be delivered again, before any fresh one.
    again: VecDeque<u64>,
    deliveries: BTreeMap<u64, u64>,
}

impl Consumer {
    /// A message came into the stream.
    pub(super) fn add(&mut self, seq: u64) {
        self.fresh.insert(seq);
    }

    /// A message left the stream.
    pub(super) fn remove(&mut self, seq: u64) {
        self.fresh.remove(&seq);
        self.held.remove(&seq);
        self.returning.remove(&seq);
        self.again.retain(|waiting| *waiting != seq);
        self.deliveries.remove(&seq);
    }

    /// Hands out the next item: its sequence and which delivery it is.
    pub(super) fn next(&mut self, now: Instant) -> Option<(u64, u64)> {
        self.expire(now);
        let full = self.held.len() + self.again.len() >= limits::ACK_PENDING_MAX as usize;
        let seq = self.again.pop_front().or_else(|| if full { None } else { self.fresh.pop_first() })?;
        self.held.insert(seq, now + limits::ACK_WAIT);
        let delivered = self.deliveries.entry(seq).or_default();
        *delivered += 1;
        Some((seq, *delivered))
    }

    /// What is in it.
    pub(super) fn depth(&self) -> Depth {
        Depth { waiting: self.fresh.len() as u64, held: (self.held.len() + self.again.len()) as u64 }
    }

    /// When the next held item comes again by itself.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.held.values().chain(self.returning.values()).min().copied()
    }

    /// Whether an acknowledgement of this item means something: it is held, or was and waits to come again.
    pub(super) fn is_pending(&self, seq: u64) -> bool {
        self.held.contains_key(&seq) || self.again.contains(&seq)
    }

    /// Starts the ack wait anew.
    pub(super) fn progress(&mut self, seq: u64, now: Instant) {
        self.expire(now);
        if let Some(deadline) = self.held.get_mut(&seq) {
            *deadline = now + limits::ACK_WAIT;
        }
    }

    /// The item comes again after a while.
    pub(super) fn retry(&mut self, seq: u64, after: Duration, now: Instant) {
        if let Some(deadline) = self.held.get_mut(&seq) {
            *deadline = now + after;
            self.expire(now);
        }
    }

    /// Everything that is held comes again.
    pub(super) fn redeliver(&mut self, now: Instant) {
        self.returning.extend(self.held.keys().map(|seq| (*seq, now + RESTARTED)));
    }

    fn expire(&mut self, now: Instant) {
        for (seq, _) in self.returning.extract_if(.., |_, deadline| *deadline <= now) {
            if self.held.remove(&seq).is_some() {
                self.again.push_back(seq);
            }
        }
        self.again.extend(self.held.extract_if(.., |_, deadline| *deadline <= now).map(|(seq, _)| seq));
    }
}
