//! What a worker asks of the code that handles its items.

use std::time::Duration;

use async_trait::async_trait;
use contract::ErrorCode;

use crate::Delivery;

/// What became of a delivered item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settle {
    /// It is dealt with.
    Done,
    /// It failed: somebody should try again after this long. Too many failures make a dead letter of a work item.
    Retry(Duration),
    /// It cannot be handled now, which is no failure of the item: the bus is away, its session is paused, somebody else
    /// holds it. It comes again after this long, and that never makes a dead letter of it.
    Postpone(Duration),
    /// It can never be dealt with: it becomes a dead letter.
    Reject {
        /// Stable.
        code: ErrorCode,
        /// For people: why.
        reason: String,
    },
}

/// Deals with delivered items.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Deals with one item. It is kept from others as long as this runs. The body may be a reference:
    /// [`Bus::open`] it. A panic is a retry, and a dead letter `poison` after a few deliveries.
    async fn handle(&self, delivery: &Delivery) -> Settle;
}
