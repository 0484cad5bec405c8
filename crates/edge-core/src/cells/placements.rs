//! Sessions that were found in another cell than the home of their id.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use contract::limits::CELL_PLACEMENTS_MAX;
use contract::subject::SessionKey;

/// Cells of the sessions that are not in the home cell of their id: a hint, which is checked before it is used. Ids are
/// short, so the number of entries bounds the bytes too.
#[derive(Debug, Default)]
pub(super) struct Placements {
    // A lock since it is held for a look-up only.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    cells: HashMap<SessionKey, usize>,
    /// The keys, the oldest first.
    order: VecDeque<SessionKey>,
}

impl Placements {
    /// Returns the index of the cell in which a session was found last.
    pub(super) fn get(&self, key: &SessionKey) -> Option<usize> {
        self.lock().cells.get(key).copied()
    }

    /// Remembers the cell of a session. The oldest entry makes room.
    pub(super) fn put(&self, key: &SessionKey, cell: usize) {
        let mut known = self.lock();
        if known.cells.insert(key.clone(), cell).is_some() {
            return;
        }
        known.order.push_back(key.clone());
        if known.order.len() > CELL_PLACEMENTS_MAX
            && let Some(oldest) = known.order.pop_front()
        {
            known.cells.remove(&oldest);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use contract::{SessionId, TenantId};

    use super::*;

    #[test]
    fn placements_above_the_limit_the_oldest_is_forgotten() {
        let key = |number: usize| SessionKey {
            tenant: TenantId::default(),
            session: SessionId::new(&format!("s{number}")).unwrap(),
        };
        let placements = Placements::default();
        for number in 0..=CELL_PLACEMENTS_MAX {
            placements.put(&key(number), 1);
            placements.put(&key(number), 2);
        }
        assert_eq!(placements.get(&key(0)), None);
        assert_eq!((placements.get(&key(1)), placements.get(&key(CELL_PLACEMENTS_MAX))), (Some(2), Some(2)));
        let known = placements.lock();
        assert_eq!((known.cells.len(), known.order.len()), (CELL_PLACEMENTS_MAX, CELL_PLACEMENTS_MAX));
    }
}
