//! Whether the fleet has room for another turn: what is taken in waits in its stream for as long as it takes, so that too
//! much is better refused at the door.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bus::{Bus, Depth};
use contract::ErrorCode;
use contract::streams::Queue;
use serde::Serialize;
use tokio::time::Instant;

use crate::failure::Failure;
use crate::guard::Caller;
use crate::sessions::Sessions;

/// How old a look at the queue may be.
const FRESH: Duration = Duration::from_secs(1);
/// When a client that was refused should try again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// What is in the fleet's queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Queues {
    /// Each queue.
    pub queues: Vec<QueueDepth>,
    /// Model calls that may wait before new turns are refused.
    pub waiting_calls_max: u64,
}

/// One queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueDepth {
    /// `drive` (inputs), `due` (timers), `model` or `tool` (calls).
    pub queue: &'static str,
    /// What is in it.
    #[serde(flatten)]
    pub depth: Depth,
}

/// The last look, shared by all requests of this replica.
#[derive(Debug)]
pub(crate) struct Admission {
    max: u64,
    seen: Mutex<Option<(Instant, u64)>>,
}

impl Admission {
    pub(crate) fn new(max: u64) -> Self {
        Self { max, seen: Mutex::new(None) }
    }

    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    /// Refuses a turn when too many model calls wait for a gateway. A look that fails refuses nothing: the streams have
    /// limits of their own.
    pub(crate) async fn admit(&self, bus: &Bus) -> Result<(), Failure> {
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = match seen {
            Some((at, waiting)) if at.elapsed() < FRESH => waiting,
            Some(_) | None => {
                let Ok(depth) = bus.transport().depth(Queue::Model).await else { return Ok(()) };
                *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), depth.waiting));
                depth.waiting
            }
        };
        if waiting < self.max {
            return Ok(());
        }
        let message =
            format!("{waiting} model calls wait for a gateway already; what was taken in goes on, try again later");
        Err(Failure::new(ErrorCode::Overloaded, message).retry_after(AGAIN_AFTER))
    }
}

impl Sessions {
    /// What waits in the fleet: how much is before whoever waits.
    pub async fn queues(&self, _: &Caller) -> Result<Queues, Failure> {
        let mut queues = Vec::new();
        for queue in Queue::ALL {
            let depth = self.bus().transport().depth(*queue).await?;
            queues.push(QueueDepth { queue: queue.durable(), depth });
        }
        Ok(Queues { queues, waiting_calls_max: self.admission().max() })
    }
}
