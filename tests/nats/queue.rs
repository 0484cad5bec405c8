//! Inputs and work items: stored once, read in order, redelivered, returned, and dead letters.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ailoop_tests::wait::PATIENCE;
use anyhow::{Context, ensure};
use async_trait::async_trait;
use bus::dead::DeadLetter;
use bus::transport::Ack;
use bus::{Bus, Delivery, Depth, Handler, Hold, Inbox, Read, SendOutcome, Settle, Worker};
use bytes::Bytes;
use contract::command::Verb;
use contract::ids::{CallAttempt, SessionId, TenantId};
use contract::limits::ACK_WAIT;
use contract::streams::{Objects, Queue, Stream};
use contract::subject::{self, SessionKey, Subject};
use contract::{CallId, ErrorCode, ToolName};
use futures::{StreamExt, TryStreamExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::nats::world::{World, eventually, id, key, pull, pull_one};

const SOON: Duration = Duration::from_secs(1);
/// In the middle of an ack wait.
const MIDDLE: Duration = Duration::from_secs(2);
/// Downtime of a server: longer than an ack wait.
const AWAY: Duration = ACK_WAIT.saturating_add(SOON);

async fn send(bus: &Bus, session: &str, name: &str) -> anyhow::Result<SendOutcome> {
    Ok(bus.send_control(&key(session)?, Verb::SendUserMessage, &id(name)?, Bytes::from_static(b"{}")).await?)
}

/// Whether an input is still in the stream.
async fn waits(bus: &Bus, session: &str, name: &str) -> anyhow::Result<bool> {
    let at = subject::control(&key(session)?, Verb::SendUserMessage, &id(name)?);
    Ok(bus.transport().last(Stream::Control, &at, Read::Leader).await?.is_some())
}

/// Acknowledges an item, and waits until the server has removed it.
async fn done(bus: &Bus, delivery: &Delivery) -> anyhow::Result<()> {
    bus.transport().ack(delivery, Ack::Done).await?;
    let at = subject::parse_control(&delivery.subject).context("an input")?;
    let at = subject::control(&at.key, at.verb, &at.id);
    eventually("the item is gone", || async {
        let last = bus.transport().last(Stream::Control, &at, Read::Leader).await;
        last.is_ok_and(|last| last.is_none_or(|last| last.seq != delivery.seq))
    })
    .await
}

/// Acknowledges all waiting items, so that the next scenario on these servers finds none.
async fn empty(bus: &Bus) -> anyhow::Result<()> {
    for delivery in pull(bus, Queue::Inputs, 2_000, Duration::from_millis(600)).await? {
        bus.transport().ack(&delivery, Ack::Done).await?;
    }
    eventually("everything is settled", || async {
        bus.transport().depth(Queue::Inputs).await.is_ok_and(|depth| depth == Depth::default())
    })
    .await
}

pub(crate) async fn input_sent_twice_is_stored_once(world: &mut World) -> anyhow::Result<()> {
    let bus = &world.bus;
    let first = send(bus, "once", "a").await?;
    assert!(matches!(first, SendOutcome::Stored(_)));
    assert_eq!(send(bus, "once", "a").await?, SendOutcome::Duplicate);
    let delivery = pull_one(bus, Queue::Inputs).await?;
    assert_eq!(SendOutcome::Stored(delivery.seq), first);
    assert_eq!(send(bus, "once", "a").await?, SendOutcome::Duplicate, "also while it is held");
    done(bus, &delivery).await?;
    assert!(matches!(send(bus, "once", "a").await?, SendOutcome::Stored(_)), "the log knows that it was handled");
    let large = Bytes::from(format!(r#"{{"meta":{{"v":1}},"x":"{}"}}"#, "y".repeat(1 << 20)));
    bus.send_control(&key("once")?, Verb::Start, &id("large")?, large.clone()).await?;
    empty_of(bus, &large).await
}

async fn empty_of(bus: &Bus, large: &Bytes) -> anyhow::Result<()> {
    let mut found = false;
    for delivery in pull(bus, Queue::Inputs, 10, Duration::from_millis(600)).await? {
        found |= bus.open(Objects::Work, delivery.payload.clone()).await? == *large;
        done(bus, &delivery).await?;
    }
    assert!(found, "a body over the inline limit arrives whole");
    Ok(())
}

pub(crate) async fn inbox_is_in_stream_order(world: &mut World) -> anyhow::Result<()> {
    let (bus, session) = (&world.bus, key("inbox")?);
    let mut sent = Vec::new();
    for n in 0..30 {
        send(bus, "other", &format!("o{n}")).await?;
        let verb = if n % 7 == 0 { Verb::Pause } else { Verb::SendUserMessage };
        // Names that do not sort as they were sent.
        let name = id(&format!("m{}", (n * 17) % 30))?;
        let SendOutcome::Stored(seq) = bus.send_control(&session, verb, &name, Bytes::new()).await? else {
            anyhow::bail!("stored before");
        };
        sent.push(seq);
    }
    // A replica may be behind, so the read is repeated.
    eventually("the inbox holds everything", || async {
        matches!(bus.inbox(&session).await, Ok(Inbox::Messages(m)) if m.iter().map(|m| m.seq).eq(sent.iter().copied()))
    })
    .await?;
    let more = (0..1_000).map(|n| {
        let session = session.clone();
        async move {
            bus.send_control(&session, Verb::Answer, &id(&format!("a{n}"))?, Bytes::new())
                .await
                .map_err(anyhow::Error::from)
        }
    });
    futures::future::try_join_all(more).await?;
    eventually("an inbox over 1,024 says so", || async { matches!(bus.inbox(&session).await, Ok(Inbox::TooMany)) })
        .await?;
    empty(bus).await
}

pub(crate) async fn silent_holder_loses_its_item(world: &mut World) -> anyhow::Result<()> {
    let other = world.connect(1).await?;
    send(&world.bus, "silent", "a").await?;
    let first = pull_one(&world.bus, Queue::Inputs).await?;
    let from = Instant::now();
    // An in-progress ack in the middle of the ack wait restarts it.
    tokio::time::sleep(MIDDLE).await;
    world.bus.transport().ack(&first, Ack::Progress).await?;
    let second = pull_one(&other, Queue::Inputs).await?;
    assert_eq!((second.seq, second.delivered), (first.seq, 2));
    assert!(from.elapsed() + SOON > MIDDLE + ACK_WAIT, "{:?}", from.elapsed());
    other.transport().ack(&second, Ack::Retry(Duration::from_millis(700))).await?;
    let from = Instant::now();
    let third = pull_one(&other, Queue::Inputs).await?;
    assert_eq!((third.seq, third.delivered), (first.seq, 3));
    assert!(from.elapsed() > Duration::from_millis(600), "{:?}", from.elapsed());
    // The ack of an earlier holder counts as well.
    world.bus.transport().ack(&first, Ack::Done).await?;
    let bus = &world.bus;
    eventually("it is gone", || async { matches!(waits(bus, "silent", "a").await, Ok(false)) }).await
}

/// Counts deliveries and never ends.
#[derive(Default)]
struct Holder {
    given: AtomicUsize,
}

#[async_trait]
impl Handler for Holder {
    async fn handle(&self, _: &Delivery, _: &Hold) -> Settle {
        self.given.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }
}

pub(crate) async fn held_items_are_redelivered_after_a_restart(world: &mut World) -> anyhow::Result<()> {
    let holder = Arc::new(Holder::default());
    let worker = Worker::start(world.connect(0).await?, Queue::Inputs, 1, holder.clone());
    send(&world.bus, "held", "a").await?;
    eventually("the item is taken", || async { holder.given.load(Ordering::SeqCst) == 1 }).await?;
    world.kill();
    // Longer than the ack wait. There is no condition to wait for while the server is down.
    tokio::time::sleep(AWAY).await;
    world.resume().await?;
    // The holder still sends in-progress acks; the server redelivers the item nevertheless.
    // The delivery count may be lost: the server stores it with a delay, and was killed.
    let again = pull_one(&world.bus, Queue::Inputs).await?;
    done(&world.bus, &again).await?;
    assert_eq!(holder.given.load(Ordering::SeqCst), 1);
    worker.drain(Duration::ZERO).await;
    Ok(())
}

pub(crate) async fn draining_worker_returns_its_items(world: &mut World) -> anyhow::Result<()> {
    let holder = Arc::new(Holder::default());
    let worker = Worker::start(world.connect(1).await?, Queue::Inputs, 3, holder.clone());
    for n in 0..6 {
        send(&world.bus, "drain", &format!("d{n}")).await?;
    }
    eventually("it takes what it has room for", || async { holder.given.load(Ordering::SeqCst) == 3 }).await?;
    worker.drain(Duration::from_millis(100)).await;
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 6 {
        let delivery = pull_one(&world.bus, Queue::Inputs).await?;
        done(&world.bus, &delivery).await?;
        seen.insert(delivery.seq);
    }
    Ok(())
}

pub(crate) async fn item_returned_to_a_draining_worker_goes_on_before_its_last_pull_ends(
    world: &mut World,
) -> anyhow::Result<()> {
    const PLACES: usize = 5;
    let bus = &world.bus;
    let holder = Arc::new(Holder::default());
    let worker = Worker::start(world.connect(1).await?, Queue::Tool, PLACES, holder.clone());
    publish_calls(bus, "drains", PLACES).await?;
    // A single tool gets all permits but one, so that the last call waits.
    eventually("one call waits for a permit", || async {
        holder.given.load(Ordering::SeqCst) == PLACES - 1
            && bus.transport().depth(Queue::Tool).await.is_ok_and(|depth| depth.held == PLACES as u64)
    })
    .await?;
    // This pull stays open after its first item, and the server serves it after the pull of the worker.
    let mut pulled = bus.transport().pull(Queue::Tool, 2, PATIENCE, CancellationToken::new()).await?;
    eventually("both pulls are open", || async {
        bus.transport().queue_state(Queue::Tool).await.is_ok_and(|state| state.pullers == 2)
    })
    .await?;
    let came = async {
        let delivery = pulled.next().await.context("a pull ends without an item")??;
        anyhow::Ok((delivery, bus.transport().queue_state(Queue::Tool).await?.pullers))
    };
    let (delivery, pullers) = tokio::select! {
        came = came => came?,
        () = worker.drain(PATIENCE) => anyhow::bail!("a handler ended"),
    };
    ensure!(delivery.delivered > 1, "the worker had no item that waited");
    ensure!(pullers == 2, "the item waited for the end of the last pull");
    Ok(())
}

pub(crate) async fn server_away_busy_worker_drains_and_nothing_waits_without_end(
    world: &mut World,
) -> anyhow::Result<()> {
    const HELD: usize = 600;
    /// More than async-nats keeps for a server that is away.
    const PUBLISHED: usize = 3_000;
    let (bus, holder) = (world.connect(0).await?, Arc::new(Holder::default()));
    let worker = Worker::start(bus.clone(), Queue::Inputs, 2 * HELD, holder.clone());
    let inputs = (0..HELD).map(|n| {
        let bus = &world.bus;
        async move { send(bus, &format!("away{n}"), "a").await }
    });
    futures::future::try_join_all(inputs).await?;
    eventually("all items are held", || async { holder.given.load(Ordering::SeqCst) == HELD }).await?;
    let generation = bus.transport().generation();
    world.kill();
    eventually("the connection is lost", || async { !bus.transport().is_connected_as(generation) }).await?;
    let nobody = subject::services_info();
    let publish = |_| bus.transport().publish(&nobody, Vec::new(), Bytes::new());
    let published = futures::future::join_all((0..PUBLISHED).map(publish));
    let published = tokio::time::timeout(PATIENCE, published).await.context("a message waits without end")?;
    ensure!(published.iter().all(|outcome| matches!(outcome, Err(error) if error.is_away())), "sent to nobody");
    tokio::time::timeout(PATIENCE, worker.drain(Duration::from_secs(1))).await.context("the worker does not end")
}

/// Rejects one item and panics at another.
struct Unwilling;

#[async_trait]
impl Handler for Unwilling {
    async fn handle(&self, delivery: &Delivery, _: &Hold) -> Settle {
        assert!(!delivery.subject.ends_with(".panics"), "planted");
        Settle::Reject { code: ErrorCode::BadRequest, reason: "refused".to_owned() }
    }
}

pub(crate) async fn item_failing_for_good_is_a_dead_letter(world: &mut World) -> anyhow::Result<()> {
    let worker = Worker::start(world.connect(2).await?, Queue::Inputs, 4, Arc::new(Unwilling));
    send(&world.bus, "dead", "refused").await?;
    send(&world.bus, "dead", "panics").await?;
    let session = key("dead")?;
    for (name, code, delivered) in [("refused", ErrorCode::BadRequest, 1), ("panics", ErrorCode::Poison, 3)] {
        let at = subject::dead(&session, subject::DeadKind::Control, &id(name)?);
        let bus = &world.bus;
        eventually("a dead letter", || async {
            matches!(bus.transport().last(Stream::Dead, &at, Read::Leader).await, Ok(Some(_)))
        })
        .await?;
        let letter = bus.transport().last(Stream::Dead, &at, Read::Leader).await?.context("it is there")?;
        let letter: DeadLetter = serde_json::from_slice(&letter.payload)?;
        assert_eq!((letter.code, letter.delivered, letter.body.get()), (code, delivered, "{}"));
        eventually("the original is gone", || async { matches!(waits(bus, "dead", name).await, Ok(false)) }).await?;
    }
    worker.drain(Duration::ZERO).await;
    Ok(())
}

/// Holds the calls of one tenant, and records when those of another begin.
#[derive(Default)]
struct SlowTenant {
    held: AtomicUsize,
    others: AtomicUsize,
}

#[async_trait]
impl Handler for SlowTenant {
    async fn handle(&self, delivery: &Delivery, _: &Hold) -> Settle {
        if delivery.subject.contains(".call.slow.") {
            self.held.fetch_add(1, Ordering::SeqCst);
            return std::future::pending().await;
        }
        self.others.fetch_add(1, Ordering::SeqCst);
        Settle::Done
    }
}

fn tool_item(tenant: &str, n: usize) -> anyhow::Result<Subject> {
    let key = SessionKey { tenant: TenantId::new(tenant)?, session: SessionId::new(&format!("s{n}"))? };
    let call = CallAttempt { call: CallId::tool(1, 1, 1), attempt: 1 };
    Ok(subject::tool_item(&key, &ToolName::new("act")?, &call))
}

pub(crate) async fn publish_calls(bus: &Bus, tenant: &str, count: usize) -> anyhow::Result<()> {
    let publish = |n| async move {
        let at = tool_item(tenant, n)?;
        bus.transport().append(&at, false, Vec::new(), Bytes::from_static(b"{}")).await?;
        anyhow::Ok(())
    };
    futures::stream::iter(0..count).map(publish).buffer_unordered(64).try_collect::<Vec<()>>().await?;
    Ok(())
}

pub(crate) async fn slow_tenant_does_not_delay_another_on_a_real_server(world: &mut World) -> anyhow::Result<()> {
    const CALLS: usize = 3_000;
    publish_calls(&world.bus, "slow", CALLS).await?;
    let handler = Arc::new(SlowTenant::default());
    let worker = Worker::start(world.connect(0).await?, Queue::Tool, 64, handler.clone());
    let bus = &world.bus;
    eventually("the backlog was pulled and returned", || async {
        handler.held.load(Ordering::SeqCst) > 40
            && bus.transport().depth(Queue::Tool).await.is_ok_and(|depth| depth.waiting == 0)
    })
    .await?;
    for n in 0..5 {
        let at = tool_item("quick", n)?;
        world.bus.transport().append(&at, false, Vec::new(), Bytes::from_static(b"{}")).await?;
        // None of the slow calls ends, so waiting for one of them would be waiting for ever.
        eventually("the call of another tenant begins", || async { handler.others.load(Ordering::SeqCst) > n }).await?;
    }
    ensure!(handler.held.load(Ordering::SeqCst) < 64, "some places stay free");
    worker.drain(Duration::ZERO).await;
    // The server takes acks after it has answered that it received them.
    eventually("only the slow calls are left", || async {
        bus.transport().depth(Queue::Tool).await.is_ok_and(|depth| depth.waiting + depth.held == CALLS as u64)
    })
    .await
}

pub(crate) async fn held_item_comes_again_after_another_was_cancelled(world: &mut World) -> anyhow::Result<()> {
    let bus = &world.bus;
    publish_calls(bus, "cancels", 4).await?;
    let held = pull(bus, Queue::Tool, 4, PATIENCE).await?;
    let [lost, cancelled, done, handed_back] = &held[..] else { anyhow::bail!("{} of 4 items", held.len()) };
    let item = subject::parse_item(&cancelled.subject).context("an item")?;
    bus.remove_item(&item.key, item.tool.as_ref(), &item.call).await?;
    bus.transport().ack(done, Ack::Done).await?;
    bus.transport().ack(handed_back, Ack::Retry(SOON)).await?;
    let mut redelivered = Vec::new();
    for _ in 0..2 {
        redelivered.push(pull_one(bus, Queue::Tool).await?);
    }
    let seqs = |first: &Delivery, second: &Delivery| BTreeSet::from([first.seq, second.seq]);
    ensure!(
        seqs(&redelivered[0], &redelivered[1]) == seqs(lost, handed_back),
        "the worker that holds an item may be gone"
    );
    for delivery in &redelivered {
        bus.transport().ack(delivery, Ack::Done).await?;
    }
    Ok(())
}

/// Counts items, which are done at once.
#[derive(Default)]
struct Counter(AtomicUsize);

#[async_trait]
impl Handler for Counter {
    async fn handle(&self, _: &Delivery, _: &Hold) -> Settle {
        self.0.fetch_add(1, Ordering::SeqCst);
        Settle::Done
    }
}

pub(crate) async fn queue_in_use_keeps_its_file(world: &mut World) -> anyhow::Result<()> {
    const ITEMS: usize = 40;
    let counter = Arc::new(Counter::default());
    let worker = Worker::start(world.connect(0).await?, Queue::Tool, 4, counter.clone());
    for n in 0..ITEMS {
        let at = tool_item("default", n)?;
        world.bus.transport().append(&at, false, Vec::new(), Bytes::from_static(b"{}")).await?;
        eventually("the item is handled", || async { counter.0.load(Ordering::SeqCst) > n }).await?;
    }
    let bus = &world.bus;
    eventually("the last item is acknowledged too", || async {
        bus.transport().depth(Queue::Tool).await.is_ok_and(|depth| depth == Depth::default())
    })
    .await?;
    worker.drain(SOON).await;
    // Each file has the next number. Without the delayed acknowledgement there would be one for each item.
    let files = world.message_files(Stream::Tool)?;
    ensure!(files < ITEMS / 2, "{files} files for {ITEMS} items");
    Ok(())
}
