//! Interface between a worker and the code that handles its items.

use std::time::Duration;

use async_trait::async_trait;
use contract::ErrorCode;

use super::hold::Hold;
use crate::Delivery;

/// The outcome of a delivered item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settle {
    /// The item is handled: acknowledge it.
    Done,
    /// It cannot be handled now: deliver it again after this pause.
    Retry(Duration),
    /// Another worker settles it: say nothing about it. If that worker dies, it is delivered again after its ack wait.
    Leave,
    /// It can never be handled: write a dead letter.
    Reject {
        /// The stable error code of the dead letter.
        code: ErrorCode,
        /// Reason of the dead letter, for people.
        reason: String,
    },
}

/// Handles the delivered items of one queue.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Handles one item, whose newest delivery `hold` has. No other worker gets it while this runs, as long as the
    /// connection stands. The body may be a reference: load it with [`crate::Bus::open`]. A panic is a retry, and a dead
    /// letter `poison` after a few deliveries. The handler of an input is dropped when its connection ends: the input
    /// comes again.
    async fn handle(&self, delivery: &Delivery, hold: &Hold) -> Settle;
}
