//! A durable pull consumer: who may have an item now, who holds one, what comes again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use contract::limits;
use tokio::time::Instant;

/// The consumer of one stream.
#[derive(Debug, Default)]
pub(super) struct Consumer {
    /// Never delivered yet.
    fresh: BTreeSet<u64>,
    /// Delivered and not acknowledged, each with its next deadline; past it the item comes again.
    held: BTreeMap<u64, Instant>,
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

    /// When the next held item comes again by itself.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.held.values().min().copied()
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
    pub(super) fn redeliver(&mut self) {
        self.again.extend(std::mem::take(&mut self.held).into_keys());
    }

    fn expire(&mut self, now: Instant) {
        self.again.extend(self.held.extract_if(.., |_, deadline| *deadline <= now).map(|(seq, _)| seq));
    }
}
