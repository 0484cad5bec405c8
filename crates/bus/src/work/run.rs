//! The one loop of a worker.

use std::sync::Arc;
use std::time::Duration;

use contract::limits;
use contract::streams::Queue;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::Handler;
use super::hold::Held;
use super::settle::{deal, hand_back};
use crate::transport::Ack;
use crate::{Bus, BusError, Delivery, retry};

/// How long one pull waits on the server: as long as an ack wait. An item that is given to a connection which carries
/// nothing any more comes again after its ack wait, and must not be given to the same connection then.
const PULL_WAIT: Duration = limits::ACK_WAIT;

type Pulled = BoxStream<'static, Result<Delivery, BusError>>;

/// Pulls and runs items until `stop`, and returns when the last handler has ended, or at `hurry` with every item
/// handed back.
pub(super) async fn run(
    bus: Bus,
    queue: Queue,
    concurrency: usize,
    handler: Arc<dyn Handler>,
    stop: CancellationToken,
    hurry: CancellationToken,
) {
    let mut held = Held::default();
    let mut running: JoinSet<u64> = JoinSet::new();
    let mut pulled: Option<Pulled> = None;
    let mut failures = 0;
    let mut progress: Option<BoxFuture<'static, ()>> = None;
    let mut tick = tokio::time::interval(limits::ACK_PROGRESS_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let stopped = stop.is_cancelled();
        if pulled.is_none() && !stopped && held.len() < concurrency {
            pulled = Some(pull(bus.clone(), queue, concurrency - held.len(), stop.clone(), failures));
        }
        if stopped && pulled.is_none() && running.is_empty() {
            break;
        }
        tokio::select! {
            // In order, so that a simulation repeats.
            biased;
            () = hurry.cancelled() => break,
            Some(ended) = running.join_next() => if let Ok(seq) = ended { held.give(seq) },
            Some(()) = drive(&mut progress) => progress = None,
            _ = tick.tick(), if progress.is_none() => {
                let due = held.since(Instant::now() - limits::ACK_PROGRESS_EVERY);
                progress = (!due.is_empty()).then(|| keep(bus.clone(), due).boxed());
            }
            Some(next) = next(&mut pulled) => match next {
                None => pulled = None,
                Some(Ok(delivery)) if stopped => hand_back(&bus, &delivery).await,
                Some(Ok(delivery)) => {
                    failures = 0;
                    count(queue, &delivery);
                    if held.take(&delivery) {
                        running.spawn(deal(bus.clone(), queue, handler.clone(), delivery));
                    }
                }
                Some(Err(error)) => {
                    failures += 1;
                    tracing::warn!(queue = queue.durable(), %error, failures, "pull failed");
                    pulled = None;
                }
            },
            () = stop.cancelled(), if !stopped => {}
        }
    }
    running.shutdown().await;
    for delivery in held.give_all() {
        hand_back(&bus, &delivery).await;
    }
    // A round trip: whoever closes the connection next cannot lose what was told last.
    if let Err(error) = bus.ping().await {
        tracing::debug!(queue = queue.durable(), %error, "drained without the server's confirmation");
    }
}

/// One pull, after a pause that grows with the failures before it.
fn pull(bus: Bus, queue: Queue, max: usize, stop: CancellationToken, failures: u32) -> Pulled {
    async move {
        if failures > 0 {
            retry::wait(failures, queue.durable()).await;
        }
        match bus.transport().pull(queue, max, PULL_WAIT, stop).await {
            Ok(pulled) => pulled,
            Err(error) => futures::stream::once(std::future::ready(Err(error))).boxed(),
        }
    }
    .flatten_stream()
    .boxed()
}

fn count(queue: Queue, delivery: &Delivery) {
    if delivery.delivered > 1 {
        telemetry::metric::redelivery(queue.durable());
        return;
    }
    telemetry::metric::queue_wait(queue.durable(), delivery.waited);
}

/// Tells the server that these items are still worked on.
async fn keep(bus: Bus, held: Vec<Delivery>) {
    for delivery in held {
        if let Err(error) = bus.transport().ack(&delivery, Ack::Progress).await {
            // The item may go to another worker; the log decides whose result counts.
            tracing::debug!(subject = delivery.subject, %error, "in-progress ack not sent");
        }
    }
}

async fn drive(progress: &mut Option<BoxFuture<'static, ()>>) -> Option<()> {
    match progress {
        Some(progress) => {
            progress.await;
            Some(())
        }
        None => None,
    }
}

async fn next(pulled: &mut Option<Pulled>) -> Option<Option<Result<Delivery, BusError>>> {
    match pulled {
        Some(pulled) => Some(pulled.next().await),
        None => None,
    }
}
