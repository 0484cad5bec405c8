//! Where logs end, as far as this process knows: a commit names the message of the slot before it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use contract::subject::SessionKey;

/// Sessions remembered. What is forgotten costs a read before the session's next commit.
const SESSIONS_MAX: usize = 16_384;

/// The last slot of each session, and its sequence in the stream.
#[derive(Debug, Default)]
pub(crate) struct Tails(Mutex<HashMap<SessionKey, (u64, u64)>>);

impl Tails {
    /// The sequence of a slot, where it is the last one that is known.
    pub(crate) fn seq(&self, key: &SessionKey, slot: u64) -> Option<u64> {
        self.lock().get(key).filter(|(last, _)| *last == slot).map(|(_, seq)| *seq)
    }

    /// Notes that a slot has this sequence; what was stored before it is forgotten, what was stored after it stays.
    pub(crate) fn note(&self, key: &SessionKey, slot: u64, seq: u64) {
        let mut tails = self.lock();
        if let Some(tail) = tails.get_mut(key) {
            if tail.1 < seq {
                *tail = (slot, seq);
            }
            return;
        }
        if tails.len() >= SESSIONS_MAX {
            tails.clear();
        }
        tails.insert(key.clone(), (slot, seq));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, (u64, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
