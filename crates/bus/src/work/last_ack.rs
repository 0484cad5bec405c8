//! The ack of the last settled item of a queue waits for the next item, so that a queue in use is not empty.
//!
//! nats-server 2.15 replaces the file of a stream's messages by a new one whenever the last message leaves the stream.
//! This takes longer than to store an item, and at a low rate each item is the last one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contract::streams::Queue;
use contract::subject;
use tokio::time::Instant;

use crate::Delivery;

/// Longest time that an ack waits for the next item. It is far below the ack wait, after which the item would be
/// redelivered.
const WAIT_MAX: Duration = Duration::from_millis(200);

/// The item that was settled last and is not acknowledged yet.
#[derive(Debug, Default)]
pub(super) struct LastAck(Mutex<Option<Waiting>>);

#[derive(Debug)]
struct Waiting {
    delivery: Delivery,
    until: Instant,
}

impl LastAck {
    /// Whether the ack of an item may wait. That of a client command may not: the same command that is sent again finds
    /// out sooner that it was handled. Timers wait in their stream all the time, so that it is never empty.
    pub(super) fn may_wait(queue: Queue, delivery: &Delivery) -> bool {
        match queue {
            Queue::Model | Queue::Tool => true,
            Queue::Inputs => {
                let input = || subject::parse_control(&delivery.subject);
                !delivery.is_request() && input().is_some_and(|input| !input.verb.is_client())
            }
            Queue::Timers => false,
        }
    }

    /// Lets the ack of this item wait, and returns the item whose ack has waited until now, if it came over the
    /// connection of `generation`. Otherwise that one is delivered again, and its handler finds that it is done.
    pub(super) fn replace(&self, delivery: Delivery, generation: u64) -> Option<Delivery> {
        let waiting = Waiting { delivery, until: Instant::now() + WAIT_MAX };
        self.lock().replace(waiting).and_then(|before| before.due(generation))
    }

    /// Returns the item whose ack waits, if the connection is still the one over which it came.
    pub(super) fn take(&self, generation: u64) -> Option<Delivery> {
        self.lock().take().and_then(|waiting| waiting.due(generation))
    }

    /// Returns the time at which the waiting ack is due.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        self.lock().as_ref().map(|waiting| waiting.until)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn due(self, generation: u64) -> Option<Delivery> {
        (self.delivery.generation == generation).then_some(self.delivery)
    }
}
