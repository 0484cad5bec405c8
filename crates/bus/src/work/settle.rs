//! Handles an item and settles it: acknowledges, retries, or writes a dead letter.
//!
//! Nothing is settled over another connection than that of the delivery: in an older store the item may not be done, or
//! another item may have its sequence. What is not settled comes again after its ack wait.
//!
//! A result that was sent by request has one answer instead: the log has it, or its worker has to store it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use contract::ErrorCode;
use contract::fleet::ResultAnswer;
use contract::streams::Queue;
use futures::FutureExt;

use super::handler::{Handler, Settle};
use super::hold::Hold;
use super::last_ack::LastAck;
use crate::json::encode;
use crate::transport::Ack;
use crate::{Bus, BusError, Delivery, retry};

/// Deliveries after which an item that makes its handler panic is a dead letter.
const PANICS_MAX: u64 = 3;
/// Tries to settle one item; later its ack wait brings it back.
const SETTLE_ROUNDS: u32 = 4;
/// Pause before an item whose dead letter could not be written comes again.
const DEAD_LETTER_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Handles and settles one item.
pub(super) async fn process(
    bus: Bus,
    queue: Queue,
    handler: Arc<dyn Handler>,
    last_ack: Arc<LastAck>,
    (delivery, hold): (Delivery, Hold),
) {
    let outcome = AssertUnwindSafe(handler.handle(&delivery, &hold)).catch_unwind().await;
    let ack = match outcome.unwrap_or_else(|_| after_panic(&delivery)) {
        Settle::Done => Ack::Done,
        Settle::Retry(after) => Ack::Retry(after),
        // It becomes a dead letter once it is stored.
        Settle::Reject { .. } if delivery.is_request() => Ack::Retry(Duration::ZERO),
        Settle::Reject { code, reason } => reject(&bus, queue, &delivery, code, &reason).await,
        Settle::Leave => {
            hold.close();
            return;
        }
    };
    let Some(newest) = hold.close() else { return };
    let settled = if ack == Ack::Done && LastAck::may_wait(queue, &newest) {
        match last_ack.replace(newest, bus.transport().generation()) {
            Some(before) => send_ack(&bus, &before, Ack::Done).await,
            None => Ok(()),
        }
    } else {
        send_ack(&bus, &newest, ack).await
    };
    if let Err(error) = settled {
        tracing::warn!(queue = queue.durable(), subject = delivery.subject, %error, "item not settled");
    }
}

fn after_panic(delivery: &Delivery) -> Settle {
    tracing::error!(subject = delivery.subject, delivered = delivery.delivered, "handler panicked");
    if delivery.delivered >= PANICS_MAX {
        return Settle::Reject { code: ErrorCode::Poison, reason: "its handler panics".to_owned() };
    }
    let round = u32::try_from(delivery.delivered).unwrap_or(u32::MAX);
    Settle::Retry(retry::pause(round.saturating_add(3), &delivery.subject))
}

/// Writes the dead letter of an item, and returns the ack of the item.
async fn reject(bus: &Bus, queue: Queue, delivery: &Delivery, code: ErrorCode, reason: &str) -> Ack {
    match bus.write_dead_letter(delivery, code.clone(), reason).await {
        Ok(()) => {
            telemetry::metric::dead_letter(queue.durable());
            tracing::warn!(queue = queue.durable(), subject = delivery.subject, %code, reason, "dead letter");
            Ack::Done
        }
        Err(error) => {
            tracing::error!(queue = queue.durable(), subject = delivery.subject, %error, "dead letter not written");
            Ack::Retry(DEAD_LETTER_RETRY_PAUSE)
        }
    }
}

/// Hands an item back, to come again after `pause`.
pub(super) async fn hand_back(bus: &Bus, delivery: &Delivery, pause: Duration) {
    if let Err(error) = settle_once(bus, delivery, Ack::Retry(pause)).await {
        tracing::warn!(subject = delivery.subject, %error, "item not handed back: its ack wait has to pass");
    }
}

/// Sends an ack, several times if need be, as long as the connection of the delivery stands.
pub(super) async fn send_ack(bus: &Bus, delivery: &Delivery, ack: Ack) -> Result<(), BusError> {
    let stands = |_: &BusError| bus.transport().generation() == delivery.generation;
    retry::repeat(SETTLE_ROUNDS, &delivery.subject, stands, || settle_once(bus, delivery, ack)).await
}

async fn settle_once(bus: &Bus, delivery: &Delivery, ack: Ack) -> Result<(), BusError> {
    if !delivery.is_request() {
        return bus.transport().ack(delivery, ack).await;
    }
    if !bus.transport().is_connected_as(delivery.generation) {
        // A server with an older store may lack what was committed.
        return Err(BusError::Unavailable("the connection over which the result came has ended".to_owned()));
    }
    let answer = if ack == Ack::Done { ResultAnswer::InLog } else { ResultAnswer::Store };
    bus.transport().reply(&delivery.ack, Vec::new(), encode(&answer)?).await
}
