//! Items that wait here for a place, for a moment: a place that is given back goes to one of them at once.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::hold::ItemId;
use super::share::{Places, Share};

/// How long an item waits here. Another worker may have a place for it meanwhile.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// Items that wait here at the same time.
const WAITING_MAX: usize = 64;
/// A worker with fewer places shares nothing out: it takes what it has a place for, in the order of the stream.
const PLACES_MIN: usize = 5;

/// Items in the order in which they came.
#[derive(Debug)]
pub(super) struct WaitQueue {
    items: VecDeque<(ItemId, Share, Instant)>,
    max: usize,
}

impl WaitQueue {
    /// At most as many as there are places; none where there are few.
    pub(super) fn new(places: usize) -> Self {
        let max = if places < PLACES_MIN { 0 } else { places.min(WAITING_MAX) };
        Self { items: VecDeque::new(), max }
    }

    /// How many more may wait.
    pub(super) fn room(&self) -> usize {
        self.max.saturating_sub(self.items.len())
    }

    /// Lets an item wait. The share comes back where it has enough that waits: the rest of the room is for others.
    pub(super) fn push(&mut self, id: ItemId, share: Share) -> Result<(), Share> {
        let same = self.items.iter().filter(|(_, other, _)| *other == share).count();
        if self.room() == 0 || same >= self.max.div_ceil(4) {
            return Err(share);
        }
        self.items.push_back((id, share, Instant::now() + WAIT_MAX));
        Ok(())
    }

    /// Takes out the item that may have a place and whose tenant, then share, holds the fewest; the oldest of those.
    pub(super) fn next(&mut self, places: &Places) -> Option<(ItemId, Share)> {
        let may = self.items.iter().enumerate().filter(|(_, (_, share, _))| places.admits(share));
        let (at, _) = may.min_by_key(|(_, (_, share, _))| places.held(share))?;
        self.items.remove(at).map(|(id, share, _)| (id, share))
    }

    /// When the first one has waited for long enough.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        self.items.front().map(|(_, _, ends)| *ends)
    }

    /// Takes out one that has waited for long enough.
    pub(super) fn pop_ended(&mut self) -> Option<(ItemId, Share)> {
        let now = Instant::now();
        self.ends_at().is_some_and(|ends| ends <= now).then(|| self.pop()).flatten()
    }

    /// Takes out the oldest.
    pub(super) fn pop(&mut self) -> Option<(ItemId, Share)> {
        self.items.pop_front().map(|(id, share, _)| (id, share))
    }
}
