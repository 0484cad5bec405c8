//! The worker on the in-memory server, in virtual time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bus::dead::DeadLetter;
use bus::transport::Ack;
use bus::work::Publication;
use bus::{Bus, Delivery, Handler, Hold, Read, Settle, Worker};
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use bytes::Bytes;
use contract::commit::VERSION;
use contract::ids::{CallAttempt, CallId, CommandId};
use contract::model::{ItemMeta, ModelItem, SignalForm, Streaming};
use contract::streams::{Queue, Stream};
use contract::subject;
use contract::{ErrorCode, Timestamp, limits};

use crate::support::{key, send};

async fn waiting(bus: &Bus) -> usize {
    match bus.inbox(&key()).await.unwrap() {
        bus::Inbox::Messages(messages) => messages.len(),
        bus::Inbox::TooMany => usize::MAX,
    }
}

async fn until(bus: &Bus, left: usize) {
    let patient = async {
        while waiting(bus).await != left {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(30), patient).await.unwrap();
}

/// Works for a while on each item, depending on its name, and counts.
#[derive(Default)]
struct Clerk {
    takes: Duration,
    now: AtomicUsize,
    most: AtomicUsize,
    handled: Mutex<BTreeMap<String, u64>>,
}

struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Handler for Clerk {
    async fn handle(&self, delivery: &Delivery, _: &Hold) -> Settle {
        let name = delivery.subject.rsplit('.').next().unwrap_or_default().to_owned();
        *self.handled.lock().unwrap().entry(name.clone()).or_default() += 1;
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        // Also where it is dropped.
        let _leaves = Leaves(&self.now);
        tokio::time::sleep(self.takes).await;
        match name.as_str() {
            "twice" if delivery.delivered < 2 => Settle::Retry(Duration::from_secs(2)),
            "panics" => panic!("planted"),
            _ => Settle::Done,
        }
    }
}

/// Panics at the first ack.
#[derive(Default)]
struct PanicsOnce(AtomicBool);

impl Faults for PanicsOnce {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let is_ack = op.action == Action::Ack(Ack::Done);
        assert!(!is_ack || self.0.swap(true, Ordering::SeqCst), "planted");
        Fault::None
    }
}

#[tokio::test(start_paused = true)]
async fn settling_an_item_panics_it_comes_again() {
    let server = MemoryServer::with_faults(Arc::new(PanicsOnce::default()));
    let (bus, clerk) = (server.bus(), Arc::new(Clerk::default()));
    let _worker = Worker::start(bus.clone(), Queue::Inputs, 1, clerk.clone());
    send(&bus, "a").await;
    until(&bus, 0).await;
    assert_eq!(clerk.handled.lock().unwrap()["a"], 2);
}

#[tokio::test(start_paused = true)]
async fn workers_with_slow_items_fill_their_places_and_handle_each_once() {
    let server = MemoryServer::new();
    let bus = server.bus();
    let clerk = Arc::new(Clerk { takes: limits::ACK_WAIT * 10, ..Clerk::default() });
    for n in 0..20 {
        send(&bus, &format!("n{n}")).await;
    }
    // Items take ten times the ack wait, and still neither worker loses one.
    let workers = [4, 3].map(|room| Worker::start(server.bus(), Queue::Inputs, room, clerk.clone()));
    until(&bus, 0).await;
    assert_eq!(clerk.most.load(Ordering::SeqCst), 7);
    assert!(clerk.handled.lock().unwrap().values().all(|times| *times == 1));
    for worker in workers {
        worker.drain(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn item_held_at_a_restart_is_handled_again_but_not_beside_itself() {
    let server = MemoryServer::new();
    let bus = server.bus();
    let clerk = Arc::new(Clerk { takes: Duration::from_mins(1), ..Clerk::default() });
    let worker = Worker::start(server.bus(), Queue::Inputs, 2, clerk.clone());
    send(&bus, "a").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.restart();
    until(&bus, 0).await;
    // What it stored before may be lost with an older store.
    assert_eq!(clerk.handled.lock().unwrap().get("a"), Some(&2));
    assert_eq!(clerk.most.load(Ordering::SeqCst), 1);
    worker.drain(Duration::ZERO).await;
}

/// Loses the first two round trips.
#[derive(Default)]
struct LostPings(AtomicUsize);

impl Faults for LostPings {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let is_lost = op.action == Action::Ping && self.0.fetch_add(1, Ordering::SeqCst) < 2;
        if is_lost { Fault::NotDone } else { Fault::None }
    }
}

#[tokio::test(start_paused = true)]
async fn subscription_is_confirmed_again_after_a_lost_round_trip() {
    let bus = MemoryServer::with_faults(Arc::new(LostPings::default())).bus();
    assert!(bus.events(&key()).await.is_ok());
}

/// Lets the worker pull nothing while it is set.
#[derive(Default)]
struct NoPulls(AtomicBool);

impl Faults for NoPulls {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let is_refused = op.client == "worker" && op.action == Action::Pull && self.0.load(Ordering::SeqCst);
        if is_refused { Fault::NotDone } else { Fault::None }
    }
}

/// It waited for a place meanwhile, and could begin when the server was there again.
#[tokio::test(start_paused = true)]
async fn item_delivered_before_an_older_store_came_back_removes_no_other_item() {
    let no_pulls = Arc::new(NoPulls::default());
    let server = MemoryServer::with_faults(no_pulls.clone());
    let (bus, (worker, _life)) = (server.bus(), server.client("worker"));
    let older = server.backup(&[Stream::Control]);
    let clerk = Arc::new(Clerk { takes: Duration::from_millis(300), ..Clerk::default() });
    // One session gets four of five places.
    let worker = Worker::start(worker, Queue::Inputs, 5, clerk.clone());
    for name in ["a", "b", "c", "d", "waits"] {
        send(&bus, name).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    no_pulls.0.store(true, Ordering::SeqCst);
    server.restore(&older);
    // They get the sequences of those.
    let later = ["e", "f", "g", "h", "i"];
    for name in later {
        send(&bus, name).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(clerk.handled.lock().unwrap().get("waits"), None);
    assert_eq!(waiting(&bus).await, later.len());
    no_pulls.0.store(false, Ordering::SeqCst);
    until(&bus, 0).await;
    assert!(later.iter().all(|name| clerk.handled.lock().unwrap().get(*name) == Some(&1)));
    worker.drain(Duration::ZERO).await;
}

async fn letter(bus: &Bus, at: &subject::Subject) -> DeadLetter {
    let letter = bus.transport().last(Stream::Dead, at, Read::Leader).await.unwrap().unwrap();
    serde_json::from_slice(&letter.payload).unwrap()
}

#[tokio::test(start_paused = true)]
async fn item_retried_comes_back_and_panicking_item_becomes_a_dead_letter() {
    let server = MemoryServer::new();
    let bus = server.bus();
    let clerk = Arc::new(Clerk::default());
    let worker = Worker::start(server.bus(), Queue::Inputs, 4, clerk.clone());
    for name in ["twice", "panics"] {
        send(&bus, name).await;
    }
    until(&bus, 0).await;
    assert_eq!(clerk.handled.lock().unwrap().get("twice"), Some(&2));
    let at = subject::dead(&key(), subject::DeadKind::Control, &CommandId::new("panics").unwrap());
    assert_eq!(letter(&bus, &at).await.code, ErrorCode::Poison);
    worker.drain(Duration::ZERO).await;
}

/// Hands every item back.
struct Hopeless(AtomicUsize);

#[async_trait]
impl Handler for Hopeless {
    async fn handle(&self, _: &Delivery, _: &Hold) -> Settle {
        self.0.fetch_add(1, Ordering::SeqCst);
        Settle::Retry(Duration::from_millis(10))
    }
}

#[tokio::test(start_paused = true)]
async fn item_handed_back_often_is_no_dead_letter() {
    let server = MemoryServer::new();
    let bus = server.bus();
    send(&bus, "never").await;
    let item = subject::model_item(&key(), &CallAttempt { call: CallId::model(1, 1), attempt: 1 });
    bus.transport().append(&item, false, Vec::new(), Bytes::from_static(b"{}")).await.unwrap();
    for (queue, at) in [(Queue::Inputs, subject::control_inbox(&key())), (Queue::Model, item)] {
        let clerk = Arc::new(Hopeless(AtomicUsize::new(0)));
        let worker = Worker::start(server.bus(), queue, 4, clerk.clone());
        let often = async {
            while clerk.0.load(Ordering::SeqCst) as u64 <= 4 * limits::DELIVERIES_MAX {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_mins(30), often).await.unwrap();
        assert!(bus.transport().last(queue.stream(), &at, Read::Leader).await.unwrap().is_some());
        worker.drain(Duration::ZERO).await;
    }
}

#[tokio::test(start_paused = true)]
async fn worker_drained_finishes_short_work_and_hands_back_long_work() {
    let server = MemoryServer::new();
    let bus = server.bus();
    let slow = Arc::new(Clerk { takes: Duration::from_secs(3), ..Clerk::default() });
    let worker = Worker::start(server.bus(), Queue::Inputs, 4, slow.clone());
    send(&bus, "short").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    worker.drain(Duration::from_secs(10)).await;
    assert_eq!(waiting(&bus).await, 0, "short work ended");

    let worker = Worker::start(server.bus(), Queue::Inputs, 4, slow.clone());
    send(&bus, "long").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    worker.drain(Duration::from_secs(1)).await;
    let quick = Arc::new(Clerk::default());
    let worker = Worker::start(server.bus(), Queue::Inputs, 4, quick.clone());
    let from = tokio::time::Instant::now();
    until(&bus, 0).await;
    assert!(from.elapsed() < Duration::from_secs(1), "{:?}", from.elapsed());
    worker.drain(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn worker_killed_another_gets_its_items() {
    let server = MemoryServer::new();
    let bus = server.bus();
    let (replica, lifecycle) = server.client("replica");
    let doomed =
        Worker::start(replica, Queue::Inputs, 4, Arc::new(Clerk { takes: limits::IDLE_MAX, ..Clerk::default() }));
    send(&bus, "a").await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    lifecycle.kill();
    let from = tokio::time::Instant::now();
    let worker = Worker::start(server.bus(), Queue::Inputs, 4, Arc::new(Clerk::default()));
    until(&bus, 0).await;
    assert!(from.elapsed() <= limits::ACK_WAIT + Duration::from_millis(50), "{:?}", from.elapsed());
    worker.drain(Duration::ZERO).await;
    drop(doomed);
}

#[tokio::test(start_paused = true)]
async fn item_of_a_sequence_that_is_given_out_again_is_handled_and_kept() {
    let server = MemoryServer::new();
    let bus = server.bus();
    let empty = server.backup(&[Stream::Control]);
    let clerk = Arc::new(Clerk { takes: Duration::from_secs(20), ..Clerk::default() });
    let _worker = Worker::start(server.bus(), Queue::Inputs, 8, clerk.clone());
    send(&bus, "lost").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    server.restore(&empty);
    // The worker still works on "lost", which had this sequence.
    send(&bus, "new").await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(waiting(&bus).await, 1, "the end of the lost item does not acknowledge the new one");
    until(&bus, 0).await;
    let handled = clerk.handled.lock().unwrap().clone();
    assert_eq!(handled, BTreeMap::from([("lost".to_owned(), 1), ("new".to_owned(), 1)]));
}

/// The first item is stored, and its publisher gets no answer.
#[derive(Default)]
struct Unanswered(AtomicUsize);

impl Faults for Unanswered {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let is_item = op.action == Action::Append && op.subject.starts_with("ai_loop.model.");
        if is_item && self.0.fetch_add(1, Ordering::SeqCst) == 0 { Fault::AckLost } else { Fault::None }
    }
}

/// Is done with each item at once, and keeps whether it may have been held before.
#[derive(Default)]
struct Quick(Mutex<Vec<bool>>);

#[async_trait]
impl Handler for Quick {
    async fn handle(&self, delivery: &Delivery, _: &Hold) -> Settle {
        self.0.lock().unwrap().push(delivery.may_have_been_held());
        Settle::Done
    }
}

#[tokio::test(start_paused = true)]
async fn item_published_again_because_nobody_answered_its_worker_knows_that_it_may_be_done() {
    let server = MemoryServer::with_faults(Arc::new(Unanswered::default()));
    let quick = Arc::new(Quick::default());
    let worker = Worker::start(server.bus(), Queue::Model, 1, quick.clone());
    let meta = ItemMeta {
        v: VERSION,
        slot: 1,
        turn: 1,
        step: 1,
        call: CallId::model(1, 1),
        attempt: 1,
        deadline: Timestamp::from_millis(u64::MAX),
        agent: "e".to_owned(),
    };
    let item = ModelItem {
        meta,
        model: "m".to_owned(),
        messages: Vec::new(),
        after: None,
        tools: Vec::new(),
        parallel_tool_calls: false,
        parameters: serde_json::Map::new(),
        response_format: None,
        streaming: Streaming::default(),
        signal: SignalForm::Off,
        opened_by: String::new(),
    };
    server.bus().publish_model_item(&key(), &item, Publication::First).await.unwrap();
    while quick.0.lock().unwrap().len() < 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(*quick.0.lock().unwrap(), [false, true], "the first one was done before the second one was stored");
    worker.drain(Duration::ZERO).await;
}
