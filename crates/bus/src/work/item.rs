//! Items of the queues: what is counted of them, and how they are handed back.

use std::time::Duration;

use contract::streams::{Queue, Stream};
use contract::subject::{self, Subject};

use crate::headers::marked_again;
use crate::transport::Ack;
use crate::{Bus, BusError, Delivery, Read};

/// Whether deliveries alone make a dead letter. An input must end in a commit however long the bus or the composer is
/// away, so that its handler alone may give it up; a lost work item is made good by the loop's own watchdog.
pub(super) fn is_counted(queue: Queue) -> bool {
    match queue {
        Queue::Inputs | Queue::Timers => false,
        Queue::Model | Queue::Tool => true,
    }
}

/// Hands an item back, to come again after `pause`.
pub(super) async fn hand_back(bus: &Bus, delivery: &Delivery, pause: Duration) {
    if let Err(error) = bus.transport().ack(delivery, Ack::Retry(pause)).await {
        tracing::warn!(subject = delivery.subject, %error, "item not handed back: its ack wait has to pass");
    }
}

/// A delivered item as the leader has it, which may be asked over another connection than that of the delivery; none
/// where it does not have this very item any more.
pub(super) async fn find_item(
    bus: &Bus,
    stream: Stream,
    at: &Subject,
    delivery: &Delivery,
) -> Result<Option<Delivery>, BusError> {
    let found = bus.transport().last(stream, at, Read::Leader).await?;
    // A server with an older store gives sequences out again.
    let found = found.filter(|found| (found.seq, found.stored_at) == (delivery.seq, delivery.stored_at));
    // It may have been given to another worker meanwhile.
    let headers = marked_again(delivery.headers.clone());
    Ok(found.map(|found| Delivery { generation: found.generation, headers, ..delivery.clone() }))
}

/// The subject of a work item; none for another message.
pub(super) fn item_subject(delivery: &Delivery) -> Option<Subject> {
    let item = subject::parse_item(&delivery.subject)?;
    Some(match &item.tool {
        Some(tool) => subject::tool_item(&item.key, tool, &item.call),
        None => subject::model_item(&item.key, &item.call),
    })
}
