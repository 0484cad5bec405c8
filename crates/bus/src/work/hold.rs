//! The items that a worker holds.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::Delivery;

/// Held items by their sequence.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<u64, (Delivery, Instant)>);

impl Held {
    /// Takes an item in; `false` when it is held already, since a restarted server delivers what is held once more.
    /// Then the newer delivery is what can be handed back.
    pub(super) fn take(&mut self, delivery: &Delivery) -> bool {
        if let Some((held, _)) = self.0.get_mut(&delivery.seq) {
            *held = delivery.clone();
            return false;
        }
        self.0.insert(delivery.seq, (delivery.clone(), Instant::now()));
        true
    }

    /// Gives an item up.
    pub(super) fn give(&mut self, seq: u64) {
        self.0.remove(&seq);
    }

    /// Everything that is still held, given up.
    pub(super) fn give_all(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.0).into_values().map(|(delivery, _)| delivery).collect()
    }

    /// What has been held since `when` or longer: younger items have time yet.
    pub(super) fn since(&self, when: Instant) -> Vec<Delivery> {
        self.0.values().filter(|(_, since)| *since <= when).map(|(delivery, _)| delivery.clone()).collect()
    }

    /// The newest delivery of an item that is held.
    pub(super) fn get(&self, seq: u64) -> Option<Delivery> {
        self.0.get(&seq).map(|(delivery, _)| delivery.clone())
    }
}
