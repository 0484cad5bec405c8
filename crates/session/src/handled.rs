//! Inputs that are already folded: the last 1,024 by id.

use std::collections::{BTreeMap, VecDeque};

use contract::CommandId;
use contract::event::{Event, InputKind, InputRef};
use contract::limits::HANDLED_IDS_MAX;
use serde::{Deserialize, Serialize};

/// The inputs remembered, oldest first.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "StoredInputs", into = "InputColumns")]
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

/// The inputs as a snapshot has them, by columns: each page repeats them all, and this takes a third of a list of them.
#[derive(Debug, Default, Serialize, Deserialize)]
struct InputColumns {
    /// The kinds that occur.
    kinds: Vec<InputKind>,
    /// The kind of each input, as an index into `kinds`.
    kind: Vec<usize>,
    ids: Vec<CommandId>,
    /// The slot of each input, less that of the one before it.
    slots: Vec<i64>,
}

/// The inputs as a snapshot may have them.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredInputs {
    Columns(InputColumns),
    /// Written by a fold below 12.
    List(Vec<(InputRef, u64)>),
}

impl TryFrom<StoredInputs> for Handled {
    type Error = &'static str;

    fn try_from(stored: StoredInputs) -> Result<Self, Self::Error> {
        let list = match stored {
            StoredInputs::List(list) => list,
            StoredInputs::Columns(columns) => columns.into_list()?,
        };
        let order = list.iter().map(|(input, _)| input.clone()).collect();
        Ok(Self { order, slots: list.into_iter().collect() })
    }
}

impl InputColumns {
    fn into_list(self) -> Result<Vec<(InputRef, u64)>, &'static str> {
        let Self { kinds, kind, ids, slots } = self;
        if ids.len() != kind.len() || ids.len() != slots.len() {
            return Err("the columns of handled inputs differ in length");
        }
        let mut slot = 0_u64;
        let mut list = Vec::with_capacity(ids.len());
        for ((kind, id), step) in kind.into_iter().zip(ids).zip(slots) {
            let kind = *kinds.get(kind).ok_or("a handled input has no kind")?;
            slot = slot.checked_add_signed(step).ok_or("a handled input has no slot")?;
            list.push((InputRef { kind, id }, slot));
        }
        Ok(list)
    }
}

impl From<Handled> for InputColumns {
    fn from(handled: Handled) -> Self {
        let Handled { order, slots } = handled;
        let (mut columns, mut before) = (Self::default(), 0);
        for input in order {
            let Some(slot) = slots.get(&input) else { continue };
            let known = columns.kinds.iter().position(|kind| *kind == input.kind);
            columns.kind.push(known.unwrap_or(columns.kinds.len()));
            if known.is_none() {
                columns.kinds.push(input.kind);
            }
            columns.slots.push(slot.wrapping_sub(before).cast_signed());
            columns.ids.push(input.id);
            before = *slot;
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use contract::command::Verb;

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

    #[test]
    fn inputs_are_stored_as_columns_and_read_again_also_as_a_list() {
        let input = |kind, id: &str| InputRef { kind, id: CommandId::new(id).unwrap() };
        let (timer, model) = (InputKind::Timer, InputKind::Control(Verb::ModelFinished));
        let inputs = [(timer, "1", 3), (model, "m1-1-1", 4), (timer, "2", 4), (model, "m1-2-1", 6)];
        let mut handled = Handled::default();
        for (kind, id, slot) in inputs {
            handled.remember(input(kind, id), slot);
        }
        // Another history gave the first one to another slot.
        handled.remember(input(timer, "1"), 9);
        let stored = serde_json::to_string(&handled).unwrap();
        let columns = concat!(
            r#"{"kinds":["timer","model_finished"],"kind":[0,1,0,1],"#,
            r#""ids":["1","m1-1-1","2","m1-2-1"],"slots":[9,-5,0,2]}"#
        );
        assert_eq!(stored, columns);
        let list = concat!(
            r#"[[{"kind":"timer","id":"1"},9],[{"kind":"model_finished","id":"m1-1-1"},4],"#,
            r#"[{"kind":"timer","id":"2"},4],[{"kind":"model_finished","id":"m1-2-1"},6]]"#
        );
        for text in [columns, list] {
            let read: Handled = serde_json::from_str(text).unwrap();
            assert_eq!((&read.order, &read.slots), (&handled.order, &handled.slots), "{text}");
        }
        for damaged in [
            r#"{"kinds":["timer"],"kind":[0],"ids":["1","2"],"slots":[9]}"#,
            r#"{"kinds":["timer"],"kind":[1],"ids":["1"],"slots":[9]}"#,
            r#"{"kinds":["timer"],"kind":[0],"ids":["1"],"slots":[-9]}"#,
        ] {
            assert!(serde_json::from_str::<Handled>(damaged).is_err(), "{damaged}");
        }
    }
}
