//! Places of a worker are shared out by tenant and by tool, on the in-memory server, in virtual time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bus::{Bus, Delivery, Handler, Hold, Settle, Worker};
use bus_memory::MemoryServer;
use bytes::Bytes;
use contract::ToolName;
use contract::command::Verb;
use contract::ids::{CallAttempt, CallId, CommandId, SessionId, TenantId};
use contract::streams::{Queue, Stream};
use contract::subject::{self, SessionKey, Subject};
use futures::StreamExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Places of the worker: the default of executors and gateways.
const PLACES: usize = 64;
/// Well below a second: how long an item whose tenant or tool has no place yet may wait for one.
const PROMPT: Duration = Duration::from_millis(500);

/// Holds items whose subject contains `holds` for `holds_for`; everything else is done at once. Records what began,
/// when.
struct Recorder {
    holds: &'static str,
    holds_for: Duration,
    begun: Mutex<BTreeMap<String, Instant>>,
    running: Mutex<(usize, usize)>,
}

impl Recorder {
    fn new(holds: &'static str, holds_for: Duration) -> Arc<Self> {
        Arc::new(Self { holds, holds_for, begun: Mutex::default(), running: Mutex::default() })
    }

    fn begun(&self, part: &str) -> usize {
        self.begun.lock().unwrap().keys().filter(|subject| subject.contains(part)).count()
    }

    fn running_most(&self) -> usize {
        self.running.lock().unwrap().1
    }

    /// Waits until an item whose subject contains `part` has begun; how long that took.
    async fn begins(&self, part: &str) -> Duration {
        let from = Instant::now();
        while self.begun(part) == 0 {
            assert!(from.elapsed() < Duration::from_mins(10), "{part} never begins");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        from.elapsed()
    }
}

#[async_trait]
impl Handler for Recorder {
    async fn handle(&self, delivery: &Delivery, _: &Hold) -> Settle {
        self.begun.lock().unwrap().insert(delivery.subject.clone(), Instant::now());
        {
            let mut running = self.running.lock().unwrap();
            running.0 += 1;
            running.1 = running.1.max(running.0);
        }
        if delivery.subject.contains(self.holds) {
            tokio::time::sleep(self.holds_for).await;
        }
        self.running.lock().unwrap().0 -= 1;
        Settle::Done
    }
}

fn key(tenant: &str, session: &str) -> SessionKey {
    SessionKey { tenant: TenantId::new(tenant).unwrap(), session: SessionId::new(session).unwrap() }
}

/// The call of session `n`.
fn item(tenant: &str, tool: &str, n: usize) -> Subject {
    let call = CallAttempt { call: CallId::tool(1, 1, 1), attempt: 1 };
    subject::tool_item(&key(tenant, &format!("s{n}")), &ToolName::new(tool).unwrap(), &call)
}

async fn publish(bus: &Bus, tenant: &str, tool: &str, from: usize, count: usize) {
    for n in from..from + count {
        let at = item(tenant, tool, n);
        bus.transport().append(&at, false, Vec::new(), Bytes::from_static(b"{}")).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn tool_hangs_with_a_thousand_calls_others_begin_promptly() {
    let server = MemoryServer::new();
    let bus = server.bus();
    let recorder = Recorder::new(".hung.", Duration::from_hours(1));
    let worker = Worker::start(server.bus(), Queue::Tool, PLACES, recorder.clone());
    publish(&bus, "a", "hung", 0, 1_000).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    publish(&bus, "a", "quick", 0, 1).await;
    assert!(recorder.begins("call.a.quick.").await < PROMPT);
    publish(&bus, "b", "quick", 0, 1).await;
    assert!(recorder.begins("call.b.quick.").await < PROMPT);
    worker.drain(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn tenant_with_thousands_of_slow_calls_does_not_delay_another() {
    let server = MemoryServer::new();
    let bus = server.bus();
    let recorder = Recorder::new("call.a.", Duration::from_mins(2));
    publish(&bus, "a", "slow", 0, 4_000).await;
    publish(&bus, "b", "quick", 0, 1).await;
    let worker = Worker::start(server.bus(), Queue::Tool, PLACES, recorder.clone());
    // It stands behind all of them in the stream.
    assert!(recorder.begins("call.b.quick.").await < Duration::from_secs(1));
    tokio::time::sleep(Duration::from_mins(1)).await;
    publish(&bus, "c", "quick", 0, 1).await;
    assert!(recorder.begins("call.c.quick.").await < PROMPT);
    worker.drain(Duration::ZERO).await;
    // What was handed back came again with growing pauses: the backlog does not turn around.
    let pulled =
        bus.transport().pull(Queue::Tool, 200, Duration::from_mins(1), CancellationToken::new()).await.unwrap();
    let delivered: Vec<u64> = pulled.map(|delivery| delivery.unwrap().delivered).collect().await;
    assert_eq!(delivered.len(), 200);
    let mean = delivered.iter().sum::<u64>() / 200;
    assert!(mean <= 10, "{mean} deliveries of each in a minute");
}

#[tokio::test(start_paused = true)]
async fn tenant_alone_uses_most_places_and_leaves_a_reserve() {
    let server = MemoryServer::new();
    let bus = server.bus();
    let recorder = Recorder::new("call.", Duration::from_mins(1));
    publish(&bus, "a", "one", 0, 200).await;
    let worker = Worker::start(server.bus(), Queue::Tool, PLACES, recorder.clone());
    tokio::time::sleep(Duration::from_secs(30)).await;
    let alone = recorder.running_most();
    assert!((PLACES * 3 / 4..PLACES).contains(&alone), "{alone} of {PLACES}");
    publish(&bus, "a", "two", 0, 200).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(recorder.begun("call.a.two.") > 0);
    assert!(recorder.running_most() < PLACES, "some stay for a tenant that comes anew");
    // As calls end, both tools get about the same.
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(recorder.begun("call.a.two.") * 3 > recorder.begun("call.a.one.") - alone);
    worker.drain(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn waiting_call_is_not_overtaken_for_long_by_newer_ones_of_its_tool() {
    let server = MemoryServer::new();
    let bus = server.bus();
    let recorder = Recorder::new(".slow.", Duration::from_secs(1));
    let worker = Worker::start(server.bus(), Queue::Tool, PLACES, recorder.clone());
    // In one second twice as many as have a place, and from then on as many newer ones as there are places given back.
    let (first, a_second, seconds) = (104, 50, 30);
    let mut stored = Vec::new();
    for n in 0..first + seconds * a_second {
        tokio::time::sleep(Duration::from_secs(1) / if n < first { 104 } else { 50 }).await;
        publish(&bus, "a", "slow", n, 1).await;
        stored.push(Instant::now());
    }
    let begun = recorder.begun.lock().unwrap().clone();
    let waited = stored[..first].iter().enumerate().map(|(n, stored)| {
        let begun = begun.get(item("a", "slow", n).as_str()).expect("one of the first calls has not begun");
        begun.duration_since(*stored)
    });
    let longest = waited.max().unwrap_or_default();
    assert!(longest < Duration::from_secs(4), "one of the first calls has waited for {longest:?}");
    worker.drain(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn call_handed_back_for_hours_is_no_dead_letter() {
    let server = MemoryServer::new();
    let bus = server.bus();
    let recorder = Recorder::new(".hung.", Duration::from_hours(1));
    let worker = Worker::start(server.bus(), Queue::Tool, 8, recorder.clone());
    publish(&bus, "a", "hung", 0, 20).await;
    tokio::time::sleep(Duration::from_hours(6)).await;
    assert_eq!(recorder.begun("call.a.hung."), 20);
    let dead =
        bus.transport().last_many(Stream::Dead, &[subject::dead_of(&TenantId::new("a").unwrap())]).await.unwrap();
    assert!(matches!(dead, bus::transport::ReadMany::Messages(letters) if letters.is_empty()));
    worker.drain(Duration::ZERO).await;
}

#[tokio::test(start_paused = true)]
async fn session_with_thousands_of_commands_does_not_delay_the_stop_of_another() {
    let server = MemoryServer::new();
    let bus = server.bus();
    let recorder = Recorder::new(".a.busy.", Duration::from_secs(30));
    for n in 0..4_000 {
        let id = CommandId::new(&format!("m{n}")).unwrap();
        bus.send_control(&key("a", "busy"), Verb::SendUserMessage, &id, Bytes::from_static(b"{}")).await.unwrap();
    }
    let worker = Worker::start(server.bus(), Queue::Inputs, 512, recorder.clone());
    bus.send_control(&key("b", "s"), Verb::Stop, &CommandId::new("stop").unwrap(), Bytes::from_static(b"{}"))
        .await
        .unwrap();
    assert!(recorder.begins(".stop.b.s.").await < Duration::from_secs(1));
    tokio::time::sleep(Duration::from_secs(20)).await;
    bus.send_control(&key("a", "idle"), Verb::Stop, &CommandId::new("stop").unwrap(), Bytes::from_static(b"{}"))
        .await
        .unwrap();
    assert!(recorder.begins(".stop.a.idle.").await < PROMPT);
    worker.drain(Duration::ZERO).await;
}
