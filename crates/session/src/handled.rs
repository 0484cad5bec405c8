//! Which inputs are already folded: the last 1,024 by id.

use std::collections::{BTreeMap, VecDeque};

use contract::event::{Event, InputRef};
use contract::limits::HANDLED_IDS_MAX;
use serde::{Deserialize, Serialize};

/// The inputs remembered, oldest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(InputRef, u64)>", into = "Vec<(InputRef, u64)>")]
pub(crate) struct Handled {
    order: VecDeque<InputRef>,
    slots: BTreeMap<InputRef, u64>,
}

impl Handled {
    /// Bytes of memory that it takes, about.
    pub(crate) fn weight(&self) -> usize {
        /// An id, twice, with its place in a list and in a tree.
        const ENTRY_BYTES: usize = 192;
        self.order.len() * ENTRY_BYTES
    }

    pub(crate) fn slot(&self, input: &InputRef) -> Option<u64> {
        self.slots.get(input).copied()
    }

    /// Whether an input that is not remembered may have been handled all the same.
    pub(crate) fn may_have_forgotten(&self) -> bool {
        self.order.len() >= HANDLED_IDS_MAX
    }

    pub(crate) fn apply(&mut self, slot: u64, event: &Event) {
        if let Some(input) = event.closed_input() {
            self.remember(input.clone(), slot);
        }
    }

    fn remember(&mut self, input: InputRef, slot: u64) {
        if self.slots.insert(input.clone(), slot).is_some() {
            return;
        }
        self.order.push_back(input);
        if self.order.len() > HANDLED_IDS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.slots.remove(&oldest);
        }
    }
}

impl From<Vec<(InputRef, u64)>> for Handled {
    fn from(list: Vec<(InputRef, u64)>) -> Self {
        let order = list.iter().map(|(input, _)| input.clone()).collect();
        Self { order, slots: list.into_iter().collect() }
    }
}

impl From<Handled> for Vec<(InputRef, u64)> {
    fn from(handled: Handled) -> Self {
        let Handled { order, slots } = handled;
        order.into_iter().filter_map(|input| slots.get(&input).copied().map(|slot| (input, slot))).collect()
    }
}

#[cfg(test)]
mod tests {
    use contract::CommandId;
    use contract::event::InputKind;

    use super::*;

    #[test]
    fn handled_ids_beyond_the_bound_are_forgotten() {
        let input = |n: usize| InputRef { kind: InputKind::Timer, id: CommandId::new(&n.to_string()).unwrap() };
        let mut handled = Handled::default();
        for n in 0..HANDLED_IDS_MAX {
            handled.remember(input(n), n as u64);
        }
        assert_eq!(handled.slot(&input(0)), Some(0));
        handled.remember(input(1), 7);
        assert_eq!((handled.slot(&input(0)), handled.slot(&input(1))), (Some(0), Some(7)), "it was known");
        for n in HANDLED_IDS_MAX..HANDLED_IDS_MAX + 2 {
            handled.remember(input(n), n as u64);
        }
        assert_eq!((handled.slot(&input(0)), handled.slot(&input(1))), (None, None));
        let last = HANDLED_IDS_MAX + 1;
        assert_eq!((handled.slot(&input(2)), handled.slot(&input(last))), (Some(2), Some(last as u64)));
        let stored = serde_json::to_string(&handled).unwrap();
        let mut read: Handled = serde_json::from_str(&stored).unwrap();
        read.remember(input(last + 1), 0);
        assert_eq!((read.slot(&input(2)), read.slot(&input(3))), (None, Some(3)), "in their order");
    }
}
