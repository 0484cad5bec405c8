//! The running calls of one tool, in which a cancel finds its call.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Calls by number, since two tries of a call have the same id.
#[derive(Clone, Default)]
pub(crate) struct RunningCalls(Arc<Mutex<CallTable>>);

#[derive(Default)]
struct CallTable {
    last: u64,
    by_number: HashMap<u64, (String, oneshot::Sender<()>)>,
}

/// Registration of a running call, which ends when dropped.
pub(crate) struct CallGuard {
    running: RunningCalls,
    number: u64,
}

impl RunningCalls {
    /// Registers a call; the receiver gets its cancel.
    pub(crate) fn register(&self, call: &str) -> (CallGuard, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        let mut calls = self.lock();
        calls.last += 1;
        let number = calls.last;
        calls.by_number.insert(number, (call.to_owned(), sender));
        (CallGuard { running: self.clone(), number }, receiver)
    }

    /// Cancels every try of a call; returns their number.
    pub(crate) fn cancel(&self, call: &str) -> usize {
        let found: Vec<_> = self.lock().by_number.extract_if(|_, (id, _)| id == call).collect();
        found.into_iter().filter_map(|(_, (_, sender))| sender.send(()).ok()).count()
    }

    /// Whether a try of this call runs or waits for a permit.
    pub(crate) fn is_running(&self, call: &str) -> bool {
        self.lock().by_number.values().any(|(id, _)| id == call)
    }

    // A lock and not a task, since it is held for a map access only; nothing can panic under it.
    fn lock(&self) -> MutexGuard<'_, CallTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        self.running.lock().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancel_reaches_every_try_and_no_other_call() {
        let running = RunningCalls::default();
        let (_a, mut first) = running.register("c1");
        let (_b, mut second) = running.register("c1");
        let (other, mut third) = running.register("c2");
        assert_eq!(running.cancel("c1"), 2);
        assert_eq!((first.try_recv(), second.try_recv()), (Ok(()), Ok(())));
        assert_eq!(third.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        assert!(running.is_running("c2"));
        drop(other);
        assert!(!running.is_running("c2"));
        assert_eq!(running.cancel("c2"), 0);
    }
}
