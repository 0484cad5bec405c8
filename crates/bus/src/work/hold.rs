//! The items that a worker holds, each with its newest delivery.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use contract::Timestamp;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::share::Share;
use crate::Delivery;

/// An item by its sequence and by when it was stored. A server with an older store gives sequences out again, so a
/// sequence alone may be another item's. Results that were sent by request come after all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ItemId {
    is_request: bool,
    seq: u64,
    stored_at: Timestamp,
}

impl ItemId {
    pub(super) fn of(delivery: &Delivery) -> Self {
        Self { is_request: delivery.is_request(), seq: delivery.seq, stored_at: delivery.stored_at }
    }

    /// Whether it is a result that was sent by request.
    pub(super) fn is_request(self) -> bool {
        self.is_request
    }

    #[cfg(test)]
    pub(super) fn request(number: u64) -> Self {
        Self { is_request: true, ..Self::at(number) }
    }

    #[cfg(test)]
    pub(super) fn at(seq: u64) -> Self {
        Self { is_request: false, seq, stored_at: Timestamp::default() }
    }
}

/// The newest delivery of an item that a handler works on: the one that is kept alive and settled. Clones share it.
///
/// An item may be delivered again while it is handled: the connection of its worker broke, or its queue was reset.
#[derive(Debug, Clone)]
pub struct Hold(Arc<Mutex<HoldState>>);

#[derive(Debug)]
enum HoldState {
    Held(Delivery),
    /// The server has another item of its sequence: nothing may be said about it under that sequence.
    Displaced,
    Settled,
}

impl Hold {
    /// Opens the hold of a delivered item.
    pub fn open(delivery: &Delivery) -> Self {
        Self(Arc::new(Mutex::new(HoldState::Held(delivery.without_content()))))
    }

    /// Takes over another delivery of the item; `false` where the item is settled already.
    pub(crate) fn renew(&self, delivery: &Delivery) -> bool {
        let mut state = self.lock();
        if matches!(*state, HoldState::Settled) {
            return false;
        }
        *state = HoldState::Held(delivery.without_content());
        true
    }

    /// The newest delivery; none where it must not be kept alive any more.
    pub(super) fn newest(&self) -> Option<Delivery> {
        match &*self.lock() {
            HoldState::Held(delivery) => Some(delivery.clone()),
            HoldState::Displaced | HoldState::Settled => None,
        }
    }

    /// Ends the hold, and returns the delivery to settle.
    pub(super) fn close(&self) -> Option<Delivery> {
        match std::mem::replace(&mut *self.lock(), HoldState::Settled) {
            HoldState::Held(delivery) => Some(delivery),
            HoldState::Displaced | HoldState::Settled => None,
        }
    }

    fn displace(&self) {
        let mut state = self.lock();
        if matches!(*state, HoldState::Held(_)) {
            *state = HoldState::Displaced;
        }
    }

    // A lock, since it is held for one access only.
    fn lock(&self) -> MutexGuard<'_, HoldState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An item that is held: it waits for a permit, or its handler runs.
#[derive(Debug)]
struct HeldItem {
    /// The item as it came first, or newer while it waits.
    delivery: Delivery,
    hold: Hold,
    since: Instant,
    /// The handler of the item, if it runs.
    run: Option<Run>,
}

/// A handler that runs with a permit of a share.
#[derive(Debug)]
pub(super) struct Run {
    /// Number of the run in this worker, which tells it from an earlier one of the same item.
    pub(super) number: u64,
    pub(super) share: Share,
    pub(super) task: AbortHandle,
}

/// The items that a worker holds.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<ItemId, HeldItem>);

impl Held {
    /// Takes an item in; `false` when it is held already: then the newer delivery is the one that is settled.
    pub(super) fn take(&mut self, delivery: &Delivery) -> bool {
        let id = ItemId::of(delivery);
        if let Some(held) = self.0.get_mut(&id) {
            held.hold.renew(delivery);
            held.delivery = delivery.clone();
            return false;
        }
        // The server has no other item of this sequence any more: an ack for that one would be taken for this one's.
        let at = |millis| ItemId { stored_at: Timestamp::from_millis(millis), ..id };
        let displaced = self.0.range(at(0)..=at(u64::MAX)).map(|(other, held)| {
            held.hold.displace();
            held.run.is_none().then_some(*other)
        });
        for waits in displaced.flatten().collect::<Vec<_>>() {
            self.0.remove(&waits);
        }
        let hold = Hold::open(delivery);
        self.0.insert(id, HeldItem { delivery: delivery.clone(), hold, since: Instant::now(), run: None });
        true
    }

    /// An item that is held, with its hold.
    pub(super) fn get(&self, id: ItemId) -> Option<(Delivery, Hold)> {
        self.0.get(&id).map(|held| (held.delivery.clone(), held.hold.clone()))
    }

    /// Notes that the handler of an item runs.
    pub(super) fn begin(&mut self, id: ItemId, run: Run) {
        if let Some(held) = self.0.get_mut(&id) {
            held.run = Some(run);
        }
    }

    /// Removes an item whose run ended, and returns the share of its permit; none if that run was forgotten.
    pub(super) fn end(&mut self, id: ItemId, number: u64) -> Option<Share> {
        let is_run = |held: &HeldItem| held.run.as_ref().is_some_and(|run| run.number == number);
        self.0.get(&id).is_some_and(is_run).then(|| self.0.remove(&id)).flatten()?.run.map(|run| run.share)
    }

    /// Removes an item that waits for a permit.
    pub(super) fn give(&mut self, id: ItemId) -> Option<Delivery> {
        self.0.remove(&id)?.hold.close()
    }

    /// Removes all items, and returns those that can be handed back.
    pub(super) fn give_all(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.0).into_values().filter_map(|held| held.hold.close()).collect()
    }

    /// Removes the items of earlier connections than that of `generation`, and returns their runs. Runs that
    /// `keeps_running` go on; the next delivery of their item finds them.
    pub(super) fn forget_earlier(&mut self, generation: u64, keeps_running: bool) -> Vec<Run> {
        let is_earlier = |held: &HeldItem| {
            let newest = held.hold.newest();
            newest.is_none_or(|newest| newest.generation != generation) && !(keeps_running && held.run.is_some())
        };
        let forgotten = self.0.extract_if(.., |_, held| is_earlier(held));
        forgotten
            .filter_map(|(_, held)| {
                held.hold.close();
                held.run
            })
            .collect()
    }

    /// The newest deliveries of the items that have been held since `when` or longer, and came over the connection of
    /// `generation`: newer ones need no progress report yet. Whoever sent a result by request waits for its answer only.
    pub(super) fn since(&self, when: Instant, generation: u64) -> Vec<Delivery> {
        let due = self.0.values().filter(|held| held.since <= when).filter_map(|held| held.hold.newest());
        due.filter(|newest| newest.generation == generation && !newest.is_request()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::task::JoinSet;

    use super::*;

    fn delivery(seq: u64, stored_at: u64, generation: u64) -> Delivery {
        Delivery {
            subject: String::new(),
            seq,
            delivered: 1,
            stored_at: Timestamp::from_millis(stored_at),
            waited: Duration::ZERO,
            connected_for: Duration::MAX,
            generation,
            headers: Vec::new(),
            payload: bytes::Bytes::new(),
            ack: String::new(),
        }
    }

    fn run(tasks: &mut JoinSet<()>) -> Run {
        let share = Share { tenant: String::new(), resource: String::new() };
        Run { number: 1, share, task: tasks.spawn(async {}) }
    }

    #[test]
    fn settled_item_takes_no_delivery_over_and_displaced_one_settles_nothing() {
        let hold = Hold::open(&delivery(1, 1, 1));
        assert!(hold.renew(&delivery(1, 1, 2)));
        assert_eq!(hold.close().map(|newest| newest.generation), Some(2));
        assert!(!hold.renew(&delivery(1, 1, 3)) && hold.close().is_none());
    }

    #[tokio::test]
    async fn other_item_of_the_sequence_displaces_a_running_one_which_a_later_delivery_brings_back() {
        let (mut held, mut tasks) = (Held::default(), JoinSet::new());
        assert!(held.take(&delivery(7, 1, 1)));
        let (_, of_run) = held.get(ItemId::of(&delivery(7, 1, 1))).unwrap();
        held.begin(ItemId::of(&delivery(7, 1, 1)), run(&mut tasks));
        assert!(held.take(&delivery(7, 2, 1)), "another item of this sequence");
        assert!(of_run.newest().is_none());
        assert!(of_run.renew(&delivery(9, 1, 1)));
        assert_eq!(of_run.close().map(|newest| newest.seq), Some(9));
        assert!(held.end(ItemId::of(&delivery(7, 1, 1)), 2).is_none(), "of another run");
        assert!(held.end(ItemId::of(&delivery(7, 1, 1)), 1).is_some());
    }

    #[tokio::test]
    async fn items_of_an_earlier_connection_are_forgotten_but_running_calls_are_not() {
        for keeps_running in [false, true] {
            let (mut held, mut tasks) = (Held::default(), JoinSet::new());
            for seq in [1, 2] {
                held.take(&delivery(seq, 1, 1));
            }
            held.begin(ItemId::of(&delivery(1, 1, 1)), run(&mut tasks));
            held.take(&delivery(3, 1, 2));
            assert_eq!(held.forget_earlier(2, keeps_running).len(), usize::from(!keeps_running));
            assert_eq!(held.0.len(), if keeps_running { 2 } else { 1 });
        }
    }
}
