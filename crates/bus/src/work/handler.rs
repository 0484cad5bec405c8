//! What a worker asks of the code that handles its items.

use std::time::Duration;

use async_trait::async_trait;
use contract::ErrorCode;

use crate::Delivery;

/// The outcome of a delivered item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settle {
    /// The item is handled: acknowledge it.
    Done,
    /// It failed: deliver it again after this pause. Too many failures make a dead letter of a work item.
    Retry(Duration),
    /// It cannot be handled now, which is no failure of the item: the bus is away, its session is paused, or another
    /// worker holds it. It is delivered again after this pause, which never makes a dead letter of it.
    Postpone(Duration),
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
    /// Handles one item. No other worker gets it while this runs. The body may be a reference: load it with
    /// [`crate::Bus::open`]. A panic is a retry, and a dead letter `poison` after a few deliveries.
    async fn handle(&self, delivery: &Delivery) -> Settle;
}
