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
    pub(crate) fn slot(&self, input: &InputRef) -> Option<u64> {
        self.slots.get(input).copied()
    }

    pub(crate) fn apply(&mut self, slot: u64, event: &Event) {
        if let Event::InputHandled(handled) = event {
            self.remember(handled.input.clone(), slot);
        } else if let Event::InputIgnored(ignored) = event {
            self.remember(ignored.input.clone(), slot);
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
