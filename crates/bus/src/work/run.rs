//! The one loop of a worker.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use contract::limits;
use contract::streams::Queue;
use contract::subject;
use futures::future::{BoxFuture, OptionFuture};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::backlog::Backlog;
use super::handler::Handler;
use super::hold::{Held, ItemId, Run};
use super::last_ack::LastAck;
use super::settle::{hand_back, process, send_ack};
use super::share::{Places, Share};
use super::wait_queue::WaitQueue;
use crate::transport::Ack;
use crate::{Bus, BusError, Delivery, SubscriptionEvent, retry};

/// Time that one pull waits on the server. A worker that stops reads its last pull to this end, because an item that
/// the server gives to an abandoned pull is redelivered only after its ack wait. The time is far below the ack wait, so
/// that the server does not redeliver an item over the same dead connection.
const PULL_WAIT: Duration = Duration::from_secs(1);
/// Times that a worker that stops hands an item back at once. The server serves open pulls in turn: an item that came to
/// the last pull of this worker goes to another pull next, unless another item was delivered meanwhile. Of many items
/// that are handed back together, each time about half come here again beside one other worker.
const AT_ONCE_MAX: u32 = 5;
/// Delay of a redelivery after the end of the last pull, for an item that came to that pull again and again.
const PULL_OVER: Duration = Duration::from_millis(50);

type Pulled = BoxStream<'static, Result<Delivery, BusError>>;

/// Pulls and runs items until `stop`, and returns when the last handler has ended, or at `abort` with every item
/// handed back; in both cases after the last pull has ended.
///
/// Each round:
///
/// 1. Forget the items of an earlier connection.
/// 2. Pull as many items as have room, or hand waiting items back once the worker stops.
/// 3. End if the worker stops, no pull is open and no item runs.
/// 4. Wait for the first of: `abort`, the end of an item, the end of the acknowledgements of progress, the time to send
///    them, the end of an item's wait for a place, the time of a delayed acknowledgement, a pulled item, an item that was
///    sent by request, `stop`.
pub(super) async fn run(
    bus: Bus,
    queue: Queue,
    concurrency: usize,
    handler: Arc<dyn Handler>,
    stop: CancellationToken,
    abort: CancellationToken,
) {
    let mut intake = Intake::new(bus.clone(), queue, concurrency, handler);
    let mut requests = requests(bus.clone(), queue);
    let mut pulled: Option<Pulled> = None;
    let mut pull_ends = Instant::now();
    let mut failures = 0;
    let mut is_aborted = false;
    let mut progress: Option<BoxFuture<'static, ()>> = None;
    let mut tick = tokio::time::interval(limits::ACK_PROGRESS_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        intake.forget_earlier_connection();
        let stopped = stop.is_cancelled();
        if stopped {
            intake.return_waiting(pull_ends).await;
        } else if pulled.is_none() && intake.room() > 0 {
            pulled = Some(pull(bus.clone(), queue, intake.room(), stop.clone(), failures));
            pull_ends = Instant::now() + PULL_WAIT;
        }
        if stopped && pulled.is_none() && intake.running.is_empty() {
            break;
        }
        let (waits_until, ack_due) = (intake.waiting.ends_at(), intake.last_ack.ends_at());
        tokio::select! {
            // In order, so that a simulation repeats.
            biased;
            () = abort.cancelled(), if !is_aborted => {
                is_aborted = true;
                intake.abort(pull_ends).await;
            }
            Some(ended) = intake.running.join_next() => intake.note_end(ended),
            Some(()) = OptionFuture::from(progress.as_mut()) => progress = None,
            _ = tick.tick(), if progress.is_none() => {
                bus.note_load(queue, intake.running.len(), concurrency);
                let due = intake.held.since(Instant::now() - limits::ACK_PROGRESS_EVERY, intake.generation);
                progress = (!due.is_empty()).then(|| extend_ack_wait(bus.clone(), due).boxed());
            }
            () = tokio::time::sleep_until(waits_until.unwrap_or_else(Instant::now)), if waits_until.is_some() => {
                intake.end_waiting().await;
            }
            () = tokio::time::sleep_until(ack_due.unwrap_or_else(Instant::now)), if ack_due.is_some() => {
                intake.send_last_ack().await;
            }
            Some(next) = OptionFuture::from(pulled.as_mut().map(StreamExt::next)) => match next {
                None => pulled = None,
                Some(Ok(delivery)) => {
                    failures = 0;
                    intake.take(delivery, stopped.then_some(pull_ends)).await;
                }
                Some(Err(error)) => {
                    failures += 1;
                    report_pull(queue, &error, failures);
                    pulled = None;
                }
            },
            // After what is stored: its sender stores it where nobody answers in time.
            Some(delivery) = requests.next() => intake.take(delivery, stopped.then_some(pull_ends)).await,
            () = stop.cancelled(), if !stopped => {}
        }
    }
    drop(requests);
    intake.finish().await;
}

/// Logs a pull that failed. While the server is away, a pull fails twice in a second, so not all are logged.
fn report_pull(queue: Queue, error: &BusError, failures: u32) {
    if failures.is_power_of_two() {
        tracing::warn!(queue = queue.durable(), %error, failures, "pull failed");
    }
}

/// The items of a worker: those that run, and those that wait for a permit.
struct Intake {
    bus: Bus,
    queue: Queue,
    handler: Arc<dyn Handler>,
    /// The connection over which it takes items.
    generation: u64,
    held: Held,
    places: Places,
    waiting: WaitQueue,
    backlog: Backlog,
    /// The tasks of running items: each returns its item and the number of its run.
    running: JoinSet<(ItemId, u64)>,
    /// Number of the last run.
    runs: u64,
    last_ack: Arc<LastAck>,
    /// Number of times that each item was handed back since the worker stopped.
    returned: BTreeMap<ItemId, u32>,
}

impl Intake {
    fn new(bus: Bus, queue: Queue, concurrency: usize, handler: Arc<dyn Handler>) -> Self {
        Self {
            generation: bus.transport().generation(),
            bus,
            queue,
            handler,
            held: Held::default(),
            places: Places::new(queue, concurrency),
            waiting: WaitQueue::new(concurrency),
            backlog: Backlog::default(),
            running: JoinSet::new(),
            runs: 0,
            last_ack: Arc::default(),
            returned: BTreeMap::new(),
        }
    }

    /// Returns the number of items to pull. With a free permit it is always more than 0, because the share of an item
    /// is known only after its delivery.
    fn room(&self) -> usize {
        self.places.free() + self.waiting.room()
    }

    /// Forgets what came over an earlier connection, and never settles it: the server may have another store now, and
    /// brings back what it has after its ack wait. Handlers of inputs end as in a crash. A call runs on, since it may have
    /// had its effect; the next delivery of its item is offered to it.
    fn forget_earlier_connection(&mut self) {
        let generation = self.bus.transport().generation();
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        self.waiting.clear();
        let keeps_running = match self.queue {
            Queue::Inputs | Queue::Timers => false,
            Queue::Model | Queue::Tool => true,
        };
        for run in self.held.forget_earlier(generation, keeps_running) {
            run.task.abort();
            self.places.give_back(&run.share);
        }
    }

    /// Takes an item in. Once the worker stops, it is handed back; then `last_pull` is the end of the last pull.
    async fn take(&mut self, delivery: Delivery, last_pull: Option<Instant>) {
        match last_pull {
            Some(ends) => self.give_back(&delivery, ends).await,
            None => self.take_in(delivery).await,
        }
    }

    /// Starts an item, lets it wait for a permit, or hands it back to come again later.
    async fn take_in(&mut self, delivery: Delivery) {
        self.forget_earlier_connection();
        if delivery.generation != self.generation {
            return;
        }
        count(self.queue, &delivery);
        if !self.held.take(&delivery) {
            tracing::debug!(subject = delivery.subject, delivered = delivery.delivered, "is held here already");
            return;
        }
        let (id, share) = (ItemId::of(&delivery), Share::of(self.queue, &delivery));
        // No waiting item may have this place: it would have it already.
        if self.places.admits(&share) {
            self.start(id, share);
        } else {
            for (id, share) in self.waiting.push(id, share, delivery.payload.len()) {
                self.postpone(id, &share).await;
            }
        }
    }

    /// Runs the handler of an item that is held. The item is released at its end, also after a panic: it comes again after
    /// its ack wait.
    fn start(&mut self, id: ItemId, share: Share) {
        let Some(item) = self.held.get(id) else { return };
        self.places.take(&share);
        self.runs += 1;
        let number = self.runs;
        let (bus, handler, last_ack) = (self.bus.clone(), self.handler.clone(), self.last_ack.clone());
        let task = AssertUnwindSafe(process(bus, self.queue, handler, last_ack, item));
        let task = self.running.spawn(task.catch_unwind().map(move |ended| {
            if ended.is_err() {
                tracing::error!(?id, "settling an item panicked");
            }
            (id, number)
        }));
        self.held.begin(id, Run { number, share, task });
    }

    /// Releases the item of a task that ended.
    fn note_end(&mut self, ended: Result<(ItemId, u64), JoinError>) {
        match ended {
            Ok((id, number)) => self.release(id, number),
            // It was forgotten with its connection.
            Err(error) if error.is_cancelled() => {}
            Err(error) => tracing::error!(queue = self.queue.durable(), %error, "the task of an item ended without it"),
        }
    }

    /// Gives back the permit of an item whose run ended, and starts waiting items while one may have a permit: first
    /// the one whose share holds the fewest.
    fn release(&mut self, id: ItemId, number: u64) {
        if let Some(share) = self.held.end(id, number) {
            self.places.give_back(&share);
        }
        while let Some((id, share)) = self.waiting.next(&self.places) {
            self.start(id, share);
        }
    }

    /// Hands back items that waited too long for a permit: another worker may have one.
    async fn end_waiting(&mut self) {
        while let Some((id, share)) = self.waiting.pop_ended() {
            self.postpone(id, &share).await;
        }
    }

    /// Hands back an item that gets no permit here.
    async fn postpone(&mut self, id: ItemId, share: &Share) {
        let Some(delivery) = self.held.give(id) else { return };
        let pause = if delivery.is_request() {
            Duration::ZERO
        } else {
            telemetry::metric::handed_back(self.queue.durable());
            self.backlog.pause(share, &delivery)
        };
        hand_back(&self.bus, &delivery, pause).await;
    }

    /// Settles what was handled last, once nothing runs any more.
    async fn finish(&self) {
        self.send_last_ack().await;
        // A round trip: closing the connection next cannot lose the last acks.
        if let Err(error) = self.bus.ping().await {
            tracing::debug!(queue = self.queue.durable(), %error, "drained without the server's confirmation");
        }
    }

    /// Acknowledges the item that was settled last.
    async fn send_last_ack(&self) {
        let Some(delivery) = self.last_ack.take(self.bus.transport().generation()) else { return };
        if let Err(error) = send_ack(&self.bus, &delivery, Ack::Done).await {
            tracing::warn!(queue = self.queue.durable(), subject = delivery.subject, %error, "item not settled");
        }
    }

    /// Hands back the items that wait for a permit, when the worker stops.
    async fn return_waiting(&mut self, pull_ends: Instant) {
        while let Some((id, _)) = self.waiting.pop() {
            if let Some(delivery) = self.held.give(id) {
                self.give_back(&delivery, pull_ends).await;
            }
        }
    }

    /// Aborts the running handlers, and hands their items back.
    async fn abort(&mut self, pull_ends: Instant) {
        self.running.shutdown().await;
        for delivery in self.held.give_all() {
            self.give_back(&delivery, pull_ends).await;
        }
    }

    /// Hands an item back at once when the worker stops. An item that came here [`AT_ONCE_MAX`] times since waits until
    /// our own last pull is over: nobody else pulls, and it would turn around here until its deliveries are used up.
    async fn give_back(&mut self, delivery: &Delivery, pull_ends: Instant) {
        let times = self.returned.entry(ItemId::of(delivery)).or_default();
        *times += 1;
        let over = || pull_ends.saturating_duration_since(Instant::now()) + PULL_OVER;
        hand_back(&self.bus, delivery, if *times <= AT_ONCE_MAX { Duration::ZERO } else { over() }).await;
    }
}

/// The results that are sent to this worker by request, if it takes inputs and has an address; else none, for ever.
fn requests(bus: Bus, queue: Queue) -> BoxStream<'static, Delivery> {
    let Some(address) = bus.address.clone().filter(|_| queue == Queue::Inputs) else {
        return futures::stream::pending().boxed();
    };
    let subject = subject::results_for(&address);
    let subscribing = bus.clone();
    let messages = async move { subscribing.subscribe_until_it_works(&subject).await }.flatten_stream();
    let mut number = 0;
    let deliveries = messages.filter_map(move |event| {
        number += 1;
        let delivery = match event {
            SubscriptionEvent::Message(message) => Delivery::of_request(message, number, bus.transport().generation()),
            SubscriptionEvent::Gap => None,
        };
        std::future::ready(delivery)
    });
    deliveries.chain(futures::stream::pending()).boxed()
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

/// Reports progress on these items, which restarts their ack wait.
async fn extend_ack_wait(bus: Bus, held: Vec<Delivery>) {
    for delivery in held {
        if let Err(error) = bus.transport().ack(&delivery, Ack::Progress).await {
            // The item may go to another worker; the log decides whose result counts.
            tracing::debug!(subject = delivery.subject, %error, "in-progress ack not sent");
        }
    }
}
