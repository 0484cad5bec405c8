//! The calls of one tool that run now: how a cancel finds its call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Calls by a number of their own, since a call that is tried again has the same id.
#[derive(Clone, Default)]
pub(crate) struct Running(Arc<Mutex<Calls>>);

#[derive(Default)]
struct Calls {
    last: u64,
    by_number: HashMap<u64, (String, oneshot::Sender<()>)>,
}

/// A place among the running calls, given up when dropped.
pub(crate) struct Place {
    running: Running,
    number: u64,
}

impl Running {
    /// Takes a place; the receiver hears of a cancel.
    pub(crate) fn enter(&self, call: &str) -> (Place, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        let mut calls = self.lock();
        calls.last += 1;
        let number = calls.last;
        calls.by_number.insert(number, (call.to_owned(), sender));
        (Place { running: self.clone(), number }, receiver)
    }

    /// Cancels every try of a call; returns how many there were.
    pub(crate) fn cancel(&self, call: &str) -> usize {
        let found: Vec<_> = self.lock().by_number.extract_if(|_, (id, _)| id == call).collect();
        found.into_iter().filter_map(|(_, (_, sender))| sender.send(()).ok()).count()
    }

    /// Whether a try of this call runs or waits for a place.
    pub(crate) fn has(&self, call: &str) -> bool {
        self.lock().by_number.values().any(|(id, _)| id == call)
    }

    // A lock and not a task, since it is held for a map access only; no panic can happen under it.
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.running.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancel_finds_every_try_and_no_other_call() {
        let running = Running::default();
        let (_a, mut first) = running.enter("c1");
        let (_b, mut second) = running.enter("c1");
        let (other, mut third) = running.enter("c2");
        assert_eq!(running.cancel("c1"), 2);
        assert_eq!((first.try_recv(), second.try_recv()), (Ok(()), Ok(())));
        assert_eq!(third.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        assert!(running.has("c2"));
        drop(other);
        assert!(!running.has("c2"));
        assert_eq!(running.cancel("c2"), 0);
    }
}
