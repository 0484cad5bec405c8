//! Assigns streamed fragments to tool calls, for each way in which providers number them.

use std::collections::BTreeMap;

/// Slots 0..n of the calls of one stream. Providers may send correct indices, gaps, always the same index, none, or a
/// new id for each fragment.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    by_index: BTreeMap<u64, u32>,
    by_id: BTreeMap<String, u32>,
    names: Vec<String>,
    last: Option<u32>,
}

impl Slots {
    /// Finds or adds the slot of a fragment. Empty ids and names count as absent.
    pub(crate) fn resolve(&mut self, index: Option<u64>, id: Option<&str>, name: Option<&str>) -> u32 {
        let id = id.filter(|id| !id.is_empty());
        let name = name.filter(|name| !name.is_empty());
        let slot = self.find_slot(index, id, name).unwrap_or_else(|| self.add_slot());
        if let Some(index) = index {
            self.by_index.insert(index, slot);
        }
        if let Some(id) = id {
            self.by_id.insert(id.to_owned(), slot);
        }
        if let (Some(name), Some(known)) = (name, self.names.get_mut(slot as usize))
            && known.is_empty()
        {
            name.clone_into(known);
        }
        self.last = Some(slot);
        slot
    }

    fn find_slot(&self, index: Option<u64>, id: Option<&str>, name: Option<&str>) -> Option<u32> {
        if let Some(slot) = id.and_then(|id| self.by_id.get(id)) {
            return Some(*slot);
        }
        match (index.and_then(|index| self.by_index.get(&index)), id, name) {
            (Some(slot), None, Some(name)) => self.accepts_name(*slot, name).then_some(*slot),
            (Some(slot), _, None) => Some(*slot),
            (None, _, None) if index.is_none() => self.last,
            // A name with a new id is a new call, even if the index is reused; so is another name.
            (Some(_), Some(_), Some(_)) | (None, _, _) => None,
        }
    }

    fn accepts_name(&self, slot: u32, name: &str) -> bool {
        self.names.get(slot as usize).is_some_and(|known| known.is_empty() || known == name)
    }

    fn add_slot(&mut self) -> u32 {
        let slot = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(String::new());
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fragment<'a> = (Option<u64>, Option<&'a str>, Option<&'a str>);

    fn check(fragments: &[Fragment<'_>], expected: &[u32]) {
        let mut slots = Slots::default();
        let got: Vec<u32> = fragments.iter().map(|(index, id, name)| slots.resolve(*index, *id, *name)).collect();
        assert_eq!(got, expected, "{fragments:?}");
    }

    #[test]
    fn fragments_with_each_numbering_have_their_slots() {
        let (a, b, f, g) = (Some("a"), Some("b"), Some("f"), Some("g"));
        // As documented: id and name come first, the rest by index, interleaved.
        check(&[(Some(0), a, f), (Some(1), b, g), (Some(0), None, None), (Some(1), None, None)], &[0, 1, 0, 1]);
        // Gaps, and an index that begins at 1.
        check(&[(Some(1), a, f), (Some(1), None, None), (Some(5), b, g), (Some(5), None, None)], &[0, 0, 1, 1]);
        // Always the same index, distinct ids.
        check(&[(Some(0), a, f), (Some(0), b, g), (Some(0), None, None)], &[0, 1, 1]);
        check(&[(Some(0), a, f), (Some(0), b, f), (Some(0), a, None)], &[0, 1, 0]);
        // No index.
        check(&[(None, a, f), (None, b, g)], &[0, 1]);
        check(&[(None, a, f), (None, None, None), (None, b, g), (None, a, None)], &[0, 0, 1, 0]);
        check(&[(None, None, f), (None, None, None), (None, None, g)], &[0, 0, 1]);
        // A fresh id per fragment.
        check(&[(Some(0), a, f), (Some(0), b, None), (Some(0), Some("c"), None)], &[0, 0, 0]);
        check(&[(None, a, f), (None, b, None)], &[0, 0]);
        // The name repeated, as it is or empty.
        check(&[(Some(0), a, f), (Some(0), a, Some("")), (Some(0), Some(""), f)], &[0, 0, 0]);
        // No ids at all, the index reused for another tool.
        check(&[(Some(0), None, f), (Some(0), None, None), (Some(0), None, g)], &[0, 0, 1]);
        // A call without a name.
        check(&[(Some(0), a, None), (Some(0), None, None), (Some(1), b, None)], &[0, 0, 1]);
    }
}
