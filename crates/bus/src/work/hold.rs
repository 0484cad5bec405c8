//! The items that a worker holds.

use std::collections::BTreeMap;

use contract::Timestamp;
use tokio::time::Instant;

use crate::Delivery;

/// An item by its sequence and by when it was stored. A server with an older store gives sequences out again, so a
/// sequence alone may be another item's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ItemId {
    seq: u64,
    stored_at: Timestamp,
}

impl ItemId {
    pub(super) fn of(delivery: &Delivery) -> Self {
        Self { seq: delivery.seq, stored_at: delivery.stored_at }
    }

    #[cfg(test)]
    pub(super) fn at(seq: u64) -> Self {
        Self { seq, stored_at: Timestamp::default() }
    }
}

/// The items that a worker holds, with the time since when.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<ItemId, (Delivery, Instant)>);

impl Held {
    /// Takes an item in; `false` when it is held already, since a restarted server delivers what is held once more.
    /// Then the newer delivery is what can be handed back.
    pub(super) fn take(&mut self, delivery: &Delivery) -> bool {
        if let Some((held, _)) = self.0.get_mut(&ItemId::of(delivery)) {
            *held = delivery.clone();
            return false;
        }
        // The server has no other item of this sequence any more: an ack for that one would be taken for this one's.
        self.0.retain(|id, _| id.seq != delivery.seq);
        self.0.insert(ItemId::of(delivery), (delivery.clone(), Instant::now()));
        true
    }

    /// Removes an item that was settled or handed back.
    pub(super) fn give(&mut self, id: ItemId) {
        self.0.remove(&id);
    }

    /// Removes and returns all items.
    pub(super) fn give_all(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.0).into_values().map(|(delivery, _)| delivery).collect()
    }

    /// The items that have been held since `when` or longer: newer ones need no progress report yet.
    pub(super) fn since(&self, when: Instant) -> Vec<Delivery> {
        self.0.values().filter(|(_, since)| *since <= when).map(|(delivery, _)| delivery.clone()).collect()
    }

    /// The newest delivery of an item that is held.
    pub(super) fn get(&self, id: ItemId) -> Option<Delivery> {
        self.0.get(&id).map(|(delivery, _)| delivery.clone())
    }
}
