//! Sessions in memory, one task at a time on each. What is cached may be stale: a commit that loses its slot tells.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use contract::subject::SessionKey;
use crate::shell::Loaded;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// A session's place: locked by the task that works on it.
type Place = Arc<AsyncMutex<Option<Loaded>>>;

/// The cache.
#[derive(Debug)]
pub(crate) struct Cache {
    // A plain lock: it is held for a look-up, never across an await.
    places: Mutex<Places>,
    max: usize,
}

#[derive(Debug, Default)]
struct Places {
    by_key: HashMap<SessionKey, (Place, u64)>,
    uses: u64,
}

impl Cache {
    pub(crate) fn new(max: usize) -> Self {
        Self { places: Mutex::default(), max: max.max(1) }
    }

    /// Waits until no other task of this replica works on the session.
    pub(crate) async fn lock(&self, key: &SessionKey) -> OwnedMutexGuard<Option<Loaded>> {
        self.place(key).lock_owned().await
    }

    /// The sessions that are remembered.
    pub(crate) fn keys(&self) -> Vec<SessionKey> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).by_key.keys().cloned().collect()
    }

    fn place(&self, key: &SessionKey) -> Place {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.uses += 1;
        let now = places.uses;
        if let Some((place, used)) = places.by_key.get_mut(key) {
            *used = now;
            return place.clone();
        }
        if places.by_key.len() >= self.max {
            places.make_room();
        }
        let place = Place::default();
        places.by_key.insert(key.clone(), (place.clone(), now));
        place
    }
}

impl Places {
    /// Forgets the half that was used longest ago, except what is being worked on.
    fn make_room(&mut self) {
        let mut uses: Vec<u64> = self.by_key.values().map(|(_, used)| *used).collect();
        let half = uses.len() / 2;
        let (_, median, _) = uses.select_nth_unstable(half);
        let median = *median;
        self.by_key.retain(|_, (place, used)| *used > median || Arc::strong_count(place) > 1);
    }
}
