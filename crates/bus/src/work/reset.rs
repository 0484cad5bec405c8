//! Resetting the queues after the server came back with an older store: everything that is stored is delivered again.
//!
//! The state of a consumer may be newer than its stream, and count an item as handled that nobody has handled. One entry
//! of the bucket of sessions says which reset was the last one, so that several replicas that notice an older store do
//! not each make one.

use std::time::Duration;

use contract::Timestamp;
use contract::streams::{Bucket, Queue};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::json::{encode, parse};
use crate::{Bus, BusError, retry};

/// Key of the entry. The lines of the index have keys of two words.
const KEY: &str = "reset";
/// Pause of deliveries before a reset. A worker that got an item before answers for its call by then, and an item that
/// is delivered after the pause has waited so long that it counts as possibly held.
const PAUSE: Duration = Duration::from_millis(1_500);
/// Longest pause of deliveries, for the case that the replica that resets dies.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// Longest wait for the reset of another replica before this one makes its own.
const PATIENCE: Duration = Duration::from_secs(6);
/// Pause between two looks at the entry.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Resets that are begun before the last error is returned.
const ROUNDS_MAX: u32 = 8;

/// A reset of the queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueReset {
    /// Random, since a counter would come back with an older store.
    id: String,
    /// Time at which it began, by the server's clock.
    at: Timestamp,
    /// Whether it has ended.
    is_done: bool,
}

impl QueueReset {
    /// Whether it was begun after the one that was known.
    fn follows(&self, known: Option<&Self>) -> bool {
        known.is_none_or(|known| self.id != known.id && self.at >= known.at)
    }
}

impl Bus {
    /// The last reset of the queues; none where there was none.
    pub async fn last_queue_reset(&self) -> Result<Option<QueueReset>, BusError> {
        Ok(self.reset_entry().await?.map(|(_, reset)| reset))
    }

    /// Resets all queues, and returns that reset, whose id is `id`, or the one that another replica made since `known` was
    /// the last one.
    pub async fn reset_queues(&self, known: Option<&QueueReset>, id: &str) -> Result<QueueReset, BusError> {
        let patience_ends = Instant::now() + PATIENCE;
        for round in 1..=ROUNDS_MAX {
            let found = loop {
                let found = self.reset_entry().await?;
                let Some((_, reset)) = found.as_ref().filter(|(_, reset)| reset.follows(known)) else { break found };
                if reset.is_done {
                    return Ok(reset.clone());
                }
                if Instant::now() >= patience_ends {
                    break found;
                }
                tokio::time::sleep(LOOK_AGAIN_AFTER).await;
            };
            let at = self.transport().server_time().await?;
            let begun = QueueReset { id: id.to_owned(), at, is_done: false };
            let bucket = self.transport();
            let revision = match found {
                Some((revision, _)) => bucket.kv_update(Bucket::Sessions, KEY, encode(&begun)?, revision, None).await?,
                None => bucket.kv_create(Bucket::Sessions, KEY, encode(&begun)?, None).await?,
            };
            let Some(revision) = revision else {
                retry::wait(round, id).await;
                continue;
            };
            self.reset_each_queue().await?;
            let done = QueueReset { is_done: true, ..begun };
            // Where it was replaced, another replica took this one for dead, and resets once more: that does no harm.
            bucket.kv_update(Bucket::Sessions, KEY, encode(&done)?, revision, None).await?;
            return Ok(done);
        }
        Err(BusError::Timeout { what: "a reset of the queues".to_owned() })
    }

    async fn reset_each_queue(&self) -> Result<(), BusError> {
        for queue in Queue::ALL {
            self.transport().pause_deliveries(*queue, Some(PAUSE_MAX)).await?;
        }
        tokio::time::sleep(PAUSE).await;
        for queue in Queue::ALL {
            self.transport().reset(*queue).await?;
            self.transport().pause_deliveries(*queue, None).await?;
        }
        Ok(())
    }

    async fn reset_entry(&self) -> Result<Option<(u64, QueueReset)>, BusError> {
        let found = self.transport().kv_entry(Bucket::Sessions, KEY).await?;
        found.map(|(revision, value)| Ok((revision, parse(&value)?))).transpose()
    }
}
