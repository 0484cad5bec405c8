//! Storing an item anew: the server counts its deliveries from one again.
//!
//! The server counts every delivery, also those after which an item was handed back through no fault of its own. An
//! item that waits for long (its session is paused, its tool has no place, the bus is away) would become a dead letter.

use std::time::Duration;

use contract::limits;
use contract::streams::{Queue, Stream};
use contract::subject::Subject;

use super::item::{find_item, hand_back, is_counted, item_subject};
use crate::headers::marked_again;
use crate::transport::Ack;
use crate::verify::{Verified, Write};
use crate::{Bus, BusError, Delivery, Read, retry};

/// Deliveries after which an item that is handed back is stored anew instead: the other half is for failures.
const HAND_BACKS_MAX: u64 = limits::DELIVERIES_MAX / 2;
/// Pause of an item that could not be stored anew, since the bus is away: each of its deliveries counts.
const AWAY_PAUSE: Duration = Duration::from_secs(30);
/// Rounds of removing an item, and of storing it again: about a minute each where the server answers. Should the bus be
/// away for longer, or this process end in between, the loop's watchdog opens another attempt of the call.
const ROUNDS_MAX: u32 = 120;

/// Whether an item that is handed back has to be stored anew.
pub(super) fn must_store_again(queue: Queue, delivery: &Delivery) -> bool {
    is_counted(queue) && delivery.delivered >= HAND_BACKS_MAX
}

/// Removes an item and stores it again at the end of its stream. An item that cannot be removed is handed back for
/// `pause`; an item that is gone, or that another worker stored again, is left alone.
pub(super) async fn store_again(bus: &Bus, queue: Queue, delivery: &Delivery, pause: Duration) -> Result<(), BusError> {
    let Some(at) = item_subject(delivery) else {
        return Err(BusError::Malformed(format!("{:?} is no work item", delivery.subject)));
    };
    let stream = queue.stream();
    match remove(bus, stream, &at, delivery).await {
        Ok(true) => {}
        Ok(false) => return Ok(()),
        Err(error) => {
            hand_back(bus, delivery, pause.max(AWAY_PAUSE)).await;
            return Err(error);
        }
    }
    // It may have been begun in one of its deliveries; the new count does not show that.
    let headers = marked_again(delivery.headers.clone());
    Verified { what: at.as_str(), salt: &delivery.subject, rounds: ROUNDS_MAX }
        .write(
            |_| async {
                let appended = bus.transport().append(&at, false, headers.clone(), delivery.payload.clone()).await?;
                Ok(Write::of(appended, |_| ()))
            },
            || async { Ok(bus.transport().last(stream, &at, Read::Leader).await?.map(drop)) },
        )
        .await
}

/// Acknowledges the item and waits until the leader shows that it is gone; `false` when it was not there any more.
/// Nothing was done where that is an error.
async fn remove(bus: &Bus, stream: Stream, at: &Subject, delivery: &Delivery) -> Result<bool, BusError> {
    let Some(mut held) = find_item(bus, stream, at, delivery).await? else { return Ok(false) };
    let mut was_acked = false;
    for round in 1..=ROUNDS_MAX {
        // A lost ack is sent again. From here on an error proves nothing.
        was_acked |= bus.transport().ack(&held, Ack::Done).await.is_ok();
        match find_item(bus, stream, at, delivery).await {
            Ok(None) if was_acked => return Ok(true),
            Ok(Some(found)) => held = found,
            Ok(None) | Err(_) => {}
        }
        retry::wait(round, &delivery.subject).await;
    }
    Err(BusError::Timeout { what: at.to_string() })
}
