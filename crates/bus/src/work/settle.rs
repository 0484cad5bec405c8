//! Handles an item and settles it: acknowledges, retries, or writes a dead letter.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use contract::streams::Queue;
use contract::subject::{self, Subject};
use contract::{ErrorCode, limits};
use futures::FutureExt;

use super::handler::{Handler, Settle};
use super::item::{find_item, is_counted, item_subject};
use super::last_ack::LastAck;
use super::store_again::{must_store_again, store_again};
use crate::transport::Ack;
use crate::{Bus, BusError, Delivery, retry};

/// Deliveries after which an item that makes its handler panic is a dead letter.
const PANICS_MAX: u64 = 3;
/// An item without a reported failure may have this many times [`limits::DELIVERIES_MAX`] deliveries.
const UNREPORTED_FACTOR: u64 = 4;
/// Reads of an item over a new connection, while it is held: about twenty seconds where the server answers.
const FIND_ROUNDS: u32 = 48;
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
    delivery: Delivery,
) {
    // Over another connection the server may not have the item, or another one of its sequence.
    let found = if bus.transport().is_connected_as(delivery.generation) {
        Some(delivery)
    } else {
        find_again(&bus, queue, &delivery).await
    };
    let Some(delivery) = found else { return };
    let too_often = |max: u64| is_counted(queue) && delivery.delivered >= max;
    let give_up = || {
        let reason = format!("still not dealt with after {} deliveries", delivery.delivered);
        Settle::Reject { code: ErrorCode::TooManyDeliveries, reason }
    };
    // An item may kill the process that handles it, so that no handler ever reports a failure.
    let settle = if too_often(limits::DELIVERIES_MAX * UNREPORTED_FACTOR) {
        give_up()
    } else {
        let outcome = AssertUnwindSafe(handler.handle(&delivery)).catch_unwind().await;
        match outcome.unwrap_or_else(|_| after_panic(&delivery)) {
            // A postponed item did not fail, however often it was delivered: the bus may have been away.
            Settle::Retry(_) if too_often(limits::DELIVERIES_MAX) => give_up(),
            settle @ (Settle::Done | Settle::Retry(_) | Settle::Postpone(_) | Settle::Reject { .. }) => settle,
        }
    };
    // An ack names a sequence. Over another connection the server may have an older store, and another item of that
    // sequence.
    let is_same_connection = bus.transport().is_connected_as(delivery.generation);
    let settled = if is_same_connection && settle == Settle::Done && LastAck::may_wait(queue, &delivery) {
        match last_ack.replace(&delivery) {
            Some(before) => send_ack(&bus, &before, Ack::Done).await,
            None => Ok(()),
        }
    } else if is_same_connection {
        settle_item(&bus, queue, &delivery, settle).await
    } else if let Some(delivery) = find_again(&bus, queue, &delivery).await {
        // What its handler stored may be lost together with the ack: only another look at the store shows that.
        let settle = if settle == Settle::Done { Settle::Postpone(Duration::ZERO) } else { settle };
        settle_item(&bus, queue, &delivery, settle).await
    } else {
        Ok(())
    };
    if let Err(error) = settled {
        tracing::warn!(queue = queue.durable(), subject = delivery.subject, %error, "item not settled");
    }
}

/// The item as the server has it after another connection was made; none where it does not have this very item any
/// more. Where the leader cannot be read, the item is left to be redelivered.
async fn find_again(bus: &Bus, queue: Queue, delivery: &Delivery) -> Option<Delivery> {
    let Some(at) = subject_of(delivery) else { return Some(delivery.clone()) };
    for round in 1..=FIND_ROUNDS {
        if let Ok(found) = find_item(bus, queue.stream(), &at, delivery).await {
            if found.is_none() {
                let (queue, subject) = (queue.durable(), &delivery.subject);
                tracing::warn!(queue, subject, "the server does not have the item any more");
            }
            return found;
        }
        retry::wait(round, &delivery.subject).await;
    }
    None
}

/// The subject of an item, as the contract builds it; none for a subject outside the contract.
fn subject_of(delivery: &Delivery) -> Option<Subject> {
    if let Some(control) = subject::parse_control(&delivery.subject) {
        return Some(subject::control(&control.key, control.verb, &control.id));
    }
    if let Some(key) = subject::parse_timer(&delivery.subject) {
        return Some(subject::timer_due(&key));
    }
    item_subject(delivery)
}

fn after_panic(delivery: &Delivery) -> Settle {
    tracing::error!(subject = delivery.subject, delivered = delivery.delivered, "handler panicked");
    if delivery.delivered >= PANICS_MAX {
        return Settle::Reject { code: ErrorCode::Poison, reason: "its handler panics".to_owned() };
    }
    let round = u32::try_from(delivery.delivered).unwrap_or(u32::MAX);
    Settle::Retry(retry::pause(round.saturating_add(3), &delivery.subject))
}

/// Sends the ack of an item, after its dead letter where it has one.
async fn settle_item(bus: &Bus, queue: Queue, delivery: &Delivery, settle: Settle) -> Result<(), BusError> {
    let ack = match settle {
        Settle::Done => Ack::Done,
        Settle::Postpone(after) if must_store_again(queue, delivery) => {
            return store_again(bus, queue, delivery, after).await;
        }
        Settle::Retry(after) | Settle::Postpone(after) => Ack::Retry(after),
        Settle::Reject { code, reason } => match bus.write_dead_letter(delivery, code.clone(), &reason).await {
            Ok(()) => {
                telemetry::metric::dead_letter(queue.durable());
                tracing::warn!(queue = queue.durable(), subject = delivery.subject, %code, reason, "dead letter");
                Ack::Done
            }
            Err(error) => {
                tracing::error!(queue = queue.durable(), subject = delivery.subject, %error, "dead letter not written");
                Ack::Retry(DEAD_LETTER_RETRY_PAUSE)
            }
        },
    };
    send_ack(bus, delivery, ack).await
}

/// Sends an ack, several times if need be. That the item is done is said only over the connection of its delivery: over
/// another one, the server may have an older store, in which the item is not done.
pub(super) async fn send_ack(bus: &Bus, delivery: &Delivery, ack: Ack) -> Result<(), BusError> {
    let mut round = 1;
    loop {
        if ack == Ack::Done && bus.transport().generation() != delivery.generation {
            return Err(BusError::Unavailable("the connection broke before the item was acknowledged".to_owned()));
        }
        match bus.transport().ack(delivery, ack).await {
            Err(_) if round < SETTLE_ROUNDS => retry::wait(round, &delivery.subject).await,
            settled => return settled,
        }
        round += 1;
    }
}
