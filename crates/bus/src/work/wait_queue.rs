//! Items that wait here for a permit: a permit that is given back goes to one of them at once.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::hold::ItemId;
use super::share::{Places, Share};

/// Longest wait of an item here while no item of its share gets a permit. Another worker may have a free one.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// Longest wait of an item here in any case: a worker that was added meanwhile gets the waiting items of the others.
const WAIT_LONGEST: Duration = Duration::from_secs(3);
/// Items that wait here for each permit, and at the same time.
const WAITING_PER_PLACE: usize = 16;
const WAITING_MAX: usize = 1_024;
/// Bytes of their bodies.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// Shares of which items wait here.
const SHARES_MAX: usize = 64;
/// Least permits of a worker that shares them. One with fewer takes as many items as it has permits, in the order of
/// the stream.
const PLACES_MIN: usize = 5;

/// Items by their share and their age in the stream.
#[derive(Debug)]
pub(super) struct WaitQueue {
    shares: BTreeMap<Share, Waiting>,
    /// The share of each item, by when it is looked at next.
    ends: BTreeMap<(Instant, ItemId), Share>,
    bytes: usize,
    max: usize,
}

/// The items of one share.
#[derive(Debug, Default)]
struct Waiting {
    items: BTreeMap<ItemId, WaitingItem>,
    /// Time at which one of them last got a permit.
    moved_at: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct WaitingItem {
    came: Instant,
    ends: Instant,
    bytes: usize,
}

impl Waiting {
    fn newest(&self) -> Option<ItemId> {
        self.items.last_key_value().map(|(id, _)| *id)
    }
}

impl WaitQueue {
    /// Makes the queue of a worker with this number of permits; nothing waits if there are few.
    pub(super) fn new(places: usize) -> Self {
        let max = if places < PLACES_MIN { 0 } else { (places * WAITING_PER_PLACE).min(WAITING_MAX) };
        Self { shares: BTreeMap::new(), ends: BTreeMap::new(), bytes: 0, max }
    }

    /// Returns the number of items to pull beside those for free permits. A full queue does not make it 0, because an
    /// item of another share displaces one of a share that has many.
    pub(super) fn room(&self) -> usize {
        self.max.min(SHARES_MAX).max(self.max.saturating_sub(self.ends.len()))
    }

    /// Lets an item wait. Returns those that have no room: the newest ones of the tenant that has most of what is short
    /// here. An older one would lose its turn to newer ones again and again otherwise, with longer pauses.
    pub(super) fn push(&mut self, id: ItemId, share: Share, bytes: usize) -> Vec<(ItemId, Share)> {
        if self.max == 0 {
            return vec![(id, share)];
        }
        self.take_out(&share, id);
        let came = Instant::now();
        let item = WaitingItem { came, ends: came + WAIT_MAX, bytes };
        self.ends.insert((item.ends, id), share.clone());
        self.shares.entry(share).or_default().items.insert(id, item);
        self.bytes += bytes;
        let mut refused = Vec::new();
        while let Some((id, share)) = self.surplus() {
            self.take_out(&share, id);
            refused.push((id, share));
        }
        refused
    }

    /// The item that has to go, if there are too many shares, items or bytes: of the tenant that has most of these. If
    /// there are too many shares, its smallest one goes, else an item of its largest.
    fn surplus(&self) -> Option<(ItemId, Share)> {
        let weigh: fn(&Waiting) -> usize = if self.shares.len() > SHARES_MAX {
            |_| 1
        } else if self.ends.len() > self.max {
            |waiting| waiting.items.len()
        } else if self.bytes > WAITING_BYTES_MAX {
            |waiting| waiting.items.values().map(|item| item.bytes).sum()
        } else {
            return None;
        };
        let mut tenants: BTreeMap<&str, (usize, Option<ItemId>)> = BTreeMap::new();
        for (share, waiting) in &self.shares {
            let (weight, newest) = tenants.entry(&share.tenant).or_default();
            *weight += weigh(waiting);
            *newest = (*newest).max(waiting.newest());
        }
        let (tenant, _) = tenants.into_iter().max_by_key(|(_, weight)| *weight)?;
        let of_tenant = self.shares.iter().filter(|(share, _)| share.tenant == tenant);
        let (share, waiting) = if self.shares.len() > SHARES_MAX {
            of_tenant.min_by_key(|(_, waiting)| (waiting.items.len(), Reverse(waiting.newest())))?
        } else {
            of_tenant.max_by_key(|(_, waiting)| (weigh(waiting), waiting.newest()))?
        };
        Some((waiting.newest()?, share.clone()))
    }

    /// Takes out the item that may have a permit and whose tenant, then share, holds the fewest; the oldest of those.
    pub(super) fn next(&mut self, places: &Places) -> Option<(ItemId, Share)> {
        let may = self.shares.iter().filter(|(share, _)| places.admits(share));
        let oldest = may.filter_map(|(share, waiting)| Some((share, *waiting.items.first_key_value()?.0)));
        let (share, id) = oldest.min_by_key(|(share, id)| (places.held(share), *id))?;
        let share = share.clone();
        if let Some(waiting) = self.shares.get_mut(&share) {
            waiting.moved_at = Some(Instant::now());
        }
        self.take_out(&share, id).then_some((id, share))
    }

    /// Returns the earliest time at which the wait of an item may end.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        self.ends.first_key_value().map(|((ends, _), _)| *ends)
    }

    /// Takes out one that has waited for long enough. Whoever sent a result by request stores it soon.
    pub(super) fn pop_ended(&mut self) -> Option<(ItemId, Share)> {
        let now = Instant::now();
        while let Some(((ends, id), share)) = self.ends.first_key_value().map(|(at, share)| (*at, share.clone())) {
            if ends > now {
                return None;
            }
            let Some((item, moved_at)) = self.shares.get_mut(&share).and_then(|waiting| {
                let moved_at = waiting.moved_at;
                waiting.items.get_mut(&id).map(|item| (item, moved_at))
            }) else {
                self.ends.remove(&(ends, id));
                continue;
            };
            let longest = item.came + if id.is_request() { WAIT_MAX } else { WAIT_LONGEST };
            let next = longest.min(moved_at.map_or(item.came, |moved| moved.max(item.came)) + WAIT_MAX);
            if next <= now {
                return self.take_out(&share, id).then_some((id, share));
            }
            item.ends = next;
            self.ends.remove(&(ends, id));
            self.ends.insert((next, id), share);
        }
        None
    }

    /// Forgets every item that waits here.
    pub(super) fn clear(&mut self) {
        self.shares.clear();
        self.ends.clear();
        self.bytes = 0;
    }

    /// Takes out any item.
    pub(super) fn pop(&mut self) -> Option<(ItemId, Share)> {
        let ((_, id), share) = self.ends.first_key_value().map(|(at, share)| (*at, share.clone()))?;
        self.take_out(&share, id).then_some((id, share))
    }

    /// Whether the item waited here.
    fn take_out(&mut self, share: &Share, id: ItemId) -> bool {
        let Some(waiting) = self.shares.get_mut(share) else { return false };
        let Some(item) = waiting.items.remove(&id) else { return false };
        if waiting.items.is_empty() {
            self.shares.remove(share);
        }
        self.ends.remove(&(item.ends, id));
        self.bytes -= item.bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use contract::streams::Queue;

    use super::*;

    fn share(resource: &str) -> Share {
        of_tenant("a", resource)
    }

    fn of_tenant(tenant: &str, resource: &str) -> Share {
        Share { tenant: tenant.to_owned(), resource: resource.to_owned() }
    }

    #[tokio::test(start_paused = true)]
    async fn full_queue_loses_the_newest_item_of_the_share_that_has_most() {
        let places = Places::new(Queue::Model, 5);
        let mut waiting = WaitQueue::new(5);
        for seq in 101..=180 {
            assert_eq!(waiting.push(ItemId::at(seq), share("x"), 1), []);
        }
        assert_eq!(waiting.push(ItemId::at(181), share("x"), 1), [(ItemId::at(181), share("x"))]);
        assert_eq!(waiting.push(ItemId::at(7), share("x"), 1), [(ItemId::at(180), share("x"))]);
        assert_eq!(waiting.push(ItemId::at(200), share("y"), 1), [(ItemId::at(179), share("x"))]);
        for seq in [7, 101, 102] {
            assert_eq!(waiting.next(&places).map(|(id, _)| id), Some(ItemId::at(seq)));
        }
        assert!(waiting.room() > 0, "also of another share");
        assert_eq!(waiting.push(ItemId::at(8), share("z"), WAITING_BYTES_MAX), [(ItemId::at(8), share("z"))]);
        assert_eq!(waiting.push(ItemId::at(103), share("x"), 1), [], "it is there already");
        assert_eq!((waiting.ends.len(), waiting.bytes), (77, 77));
    }

    #[tokio::test(start_paused = true)]
    async fn full_queue_loses_items_of_the_tenant_that_has_most() {
        let mut waiting = WaitQueue::new(5);
        for seq in 1..=40 {
            waiting.push(ItemId::at(seq), of_tenant("flood", &format!("s{seq}")), 1);
            waiting.push(ItemId::at(100 + seq), of_tenant("flood", "large"), 1);
        }
        // Its share is the largest one, but its tenant has fewer.
        for seq in 200..=230 {
            let refused = waiting.push(ItemId::at(seq), of_tenant("other", "one"), 1);
            assert!(refused.iter().all(|(_, share)| share.tenant == "flood"), "{refused:?}");
        }
        assert_eq!(waiting.ends.len(), 80);
        let mut waiting = WaitQueue::new(64);
        for seq in 1..=64 {
            assert_eq!(waiting.push(ItemId::at(seq), of_tenant("flood", &format!("s{seq}")), 1), []);
        }
        let refused = waiting.push(ItemId::at(65), of_tenant("other", "one"), 1);
        assert_eq!(refused, [(ItemId::at(64), of_tenant("flood", "s64"))]);
    }

    #[tokio::test(start_paused = true)]
    async fn item_waits_longer_while_its_share_moves() {
        let places = Places::new(Queue::Model, 64);
        let mut waiting = WaitQueue::new(64);
        for (seq, resource) in [(1, "moves"), (2, "moves"), (3, "moves"), (4, "hangs")] {
            waiting.push(ItemId::at(seq), share(resource), 1);
        }
        waiting.push(ItemId::request(1), share("moves"), 1);
        tokio::time::advance(WAIT_MAX / 2).await;
        assert_eq!(waiting.next(&places), Some((ItemId::at(1), share("moves"))));
        tokio::time::advance(WAIT_MAX / 2).await;
        assert_eq!(waiting.pop_ended(), Some((ItemId::at(4), share("hangs"))));
        assert_eq!(waiting.pop_ended(), Some((ItemId::request(1), share("moves"))), "its sender waits no longer");
        assert_eq!(waiting.pop_ended(), None);
        for _ in 0..4 {
            waiting.shares.get_mut(&share("moves")).unwrap().moved_at = Some(Instant::now());
            tokio::time::advance(WAIT_MAX / 2).await;
            assert_eq!(waiting.pop_ended(), None);
        }
        tokio::time::advance(WAIT_MAX / 2).await;
        assert_eq!(waiting.pop_ended(), Some((ItemId::at(2), share("moves"))), "its share has not moved any more");
        waiting.shares.get_mut(&share("moves")).unwrap().moved_at = Some(Instant::now() + WAIT_LONGEST);
        tokio::time::advance(WAIT_LONGEST).await;
        assert_eq!(waiting.pop_ended(), Some((ItemId::at(3), share("moves"))));
        assert_eq!((waiting.ends_at(), waiting.bytes), (None, 0));
    }
}
