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

/// Items in the order in which they came here.
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

    /// Lets an item wait. Returns the one that has no room: where enough of its share waits, that is the newest of the
    /// share. Otherwise one that was handed back would lose its turn to newer ones again and again, with longer pauses.
    pub(super) fn push(&mut self, id: ItemId, share: Share) -> Option<(ItemId, Share)> {
        let of_share = || self.items.iter().enumerate().filter(|(_, (_, other, _))| *other == share);
        let mut refused = None;
        if self.room() == 0 || of_share().count() >= self.max.div_ceil(4) {
            let newest = of_share().map(|(at, (other, _, _))| (*other, at)).max();
            let Some((_, at)) = newest.filter(|(other, _)| *other > id) else { return Some((id, share)) };
            refused = self.take_out(at);
        }
        self.items.push_back((id, share, Instant::now() + WAIT_MAX));
        refused
    }

    /// Takes out the item that may have a place and whose tenant, then share, holds the fewest; the oldest of those.
    pub(super) fn next(&mut self, places: &Places) -> Option<(ItemId, Share)> {
        let may = self.items.iter().enumerate().filter(|(_, (_, share, _))| places.admits(share));
        let (at, _) = may.min_by_key(|(_, (id, share, _))| (places.held(share), *id))?;
        self.take_out(at)
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

    /// Forgets every item that waits here.
    pub(super) fn clear(&mut self) {
        self.items.clear();
    }

    /// Takes out the one that came first.
    pub(super) fn pop(&mut self) -> Option<(ItemId, Share)> {
        self.take_out(0)
    }

    fn take_out(&mut self, at: usize) -> Option<(ItemId, Share)> {
        self.items.remove(at).map(|(id, share, _)| (id, share))
    }
}

#[cfg(test)]
mod tests {
    use contract::streams::Queue;

    use super::*;

    fn share(resource: &str) -> Share {
        Share { tenant: "a".to_owned(), resource: resource.to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn older_item_takes_the_room_and_the_turn_of_a_newer_one_of_its_share() {
        let places = Places::new(Queue::Model, 64);
        let mut waiting = WaitQueue::new(64);
        for seq in 101..=116 {
            assert_eq!(waiting.push(ItemId::at(seq), share("x")), None);
        }
        assert_eq!(waiting.push(ItemId::at(117), share("x")), Some((ItemId::at(117), share("x"))));
        assert_eq!(waiting.push(ItemId::at(7), share("x")), Some((ItemId::at(116), share("x"))));
        assert_eq!(waiting.push(ItemId::at(200), share("y")), None, "another share has its own room");
        for seq in [7, 101, 102] {
            assert_eq!(waiting.next(&places).map(|(id, _)| id), Some(ItemId::at(seq)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn full_queue_is_no_reason_to_refuse_an_older_item_for_a_newer_of_another_share() {
        let mut waiting = WaitQueue::new(8);
        for (seq, resource) in [(1, "w"), (2, "w"), (3, "x"), (4, "x"), (5, "y"), (6, "y"), (7, "z"), (9, "z")] {
            assert_eq!(waiting.push(ItemId::at(seq), share(resource)), None);
        }
        assert_eq!(waiting.push(ItemId::at(8), share("v")), Some((ItemId::at(8), share("v"))));
        assert_eq!(waiting.push(ItemId::at(8), share("z")), Some((ItemId::at(9), share("z"))));
        assert_eq!(waiting.room(), 0);
    }
}
