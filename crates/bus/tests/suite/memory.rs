//! The in-memory server's faults, and how the bus settles each: in virtual time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::transport::{Ack, Appended};
use bus::{Bus, BusError, Claim, Committed, Inbox, Offer, Read, SendOutcome};
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use bytes::Bytes;
use contract::command::Verb;
use contract::commit::{Commit, Phase};
use contract::ids::{CallId, CommandId, SessionId, TenantId};
use contract::streams::{Queue, Stream};
use contract::subject::{self, SessionKey};
use futures::{FutureExt, StreamExt};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Faults for the next operations of one kind, in order.
struct Script(fn(Action) -> bool, Mutex<VecDeque<Fault>>);

impl Faults for Script {
    fn decide(&self, op: Operation<'_>) -> Fault {
        if !self.0(op.action) {
            return Fault::None;
        }
        self.1.lock().unwrap().pop_front().unwrap_or(Fault::None)
    }
}

fn server(kind: fn(Action) -> bool, faults: &[Fault]) -> MemoryServer {
    MemoryServer::with_faults(Arc::new(Script(kind, Mutex::new(faults.iter().copied().collect()))))
}

fn appends(action: Action) -> bool {
    action == Action::Append
}

fn key() -> SessionKey {
    SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() }
}

fn id(text: &str) -> CommandId {
    CommandId::new(text).unwrap()
}

fn commit(id: &str) -> Bytes {
    let meta = serde_json::json!({
        "v": 1, "commit": id, "fold": 1, "phase": Phase::Running, "open": [], "control_seq": 0, "seq": 1,
        "time": "2024-01-15T10:30:45.123Z",
    });
    serde_json::to_vec(&serde_json::json!({ "meta": meta, "events": [] })).unwrap().into()
}

async fn slots(bus: &Bus) -> Vec<(u64, String)> {
    bus.history(&key(), 0).await.unwrap().into_iter().map(|(slot, commit)| (slot, commit.meta.commit)).collect()
}

#[tokio::test(start_paused = true)]
async fn commit_is_doubtful_outcome_is_settled() {
    let doubts = [10_071, 10_164, 10_158, 0];
    let stored = doubts.map(|code| Fault::Doubtful { code, stored: true });
    let refused = doubts.map(|code| Fault::Doubtful { code, stored: false });
    let others = [Fault::AckLost, Fault::NotDone, Fault::Lag(Duration::from_secs(1)), Fault::Redeliver];
    for fault in stored.into_iter().chain(refused).chain(others) {
        // The same fault three times, then none.
        let server = server(appends, &[fault; 3]);
        let bus = server.bus();
        assert_eq!(bus.commit(&key(), 0, "a", commit("a")).await.unwrap(), Committed::Ours, "{fault:?}");
        assert_eq!(bus.commit(&key(), 0, "b", commit("b")).await.unwrap(), Committed::Theirs, "{fault:?}");
        assert_eq!(slots(&bus).await, [(0, "a".to_owned())], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn commit_without_any_answer_is_a_timeout() {
    let server = server(|action| matches!(action, Action::Append | Action::Last(_)), &[Fault::AckLost; 64]);
    let commit = server.bus().commit(&key(), 0, "a", commit("a")).await;
    assert!(matches!(commit, Err(BusError::Timeout { .. })), "{commit:?}");
}

#[tokio::test(start_paused = true)]
async fn input_refused_is_a_duplicate_only_if_it_is_stored() {
    let send = |bus: Bus| async move { bus.send_control(&key(), Verb::Pause, &id("c"), Bytes::new()).await };
    let full = Fault::Doubtful { code: 10_077, stored: false };
    // Full for a while, then not.
    let bus = server(appends, &[full; 3]).bus();
    assert!(matches!(send(bus.clone()).await, Ok(SendOutcome::Stored(_))));
    assert!(matches!(send(bus).await, Ok(SendOutcome::Duplicate)));
    // Full for good.
    let bus = server(appends, &[full; 64]).bus();
    assert!(matches!(send(bus).await, Err(BusError::Full(_))));
    // There, though its ack never came.
    let bus = server(appends, &[Fault::AckLost]).bus();
    assert!(matches!(send(bus).await, Ok(SendOutcome::Duplicate)));
}

#[tokio::test(start_paused = true)]
async fn log_read_from_stale_replicas_has_no_holes() {
    let reads = |action| matches!(action, Action::Last(Read::Any) | Action::LastMany);
    for lag in [1, 3, 70, 1_000] {
        let server = server(reads, &[Fault::Stale(lag); 16]);
        let bus = server.bus();
        for slot in 0..70 {
            let id = format!("c{slot}");
            assert_eq!(bus.commit(&key(), slot, &id, commit(&id)).await.unwrap(), Committed::Ours);
        }
        let page = bus.load_from(&key(), 69).await.unwrap().unwrap();
        let found: Vec<u64> = page.iter().map(|(slot, _)| *slot).collect();
        assert_eq!(found, (64..70).collect::<Vec<_>>(), "lag {lag}");
        assert!(bus.load(&key()).await.unwrap().is_some(), "not there is never believed of a replica");
    }
}

#[tokio::test(start_paused = true)]
async fn slots_read_alone_are_those_of_the_log() {
    let server = server(|action| matches!(action, Action::Last(Read::Any)), &[Fault::Stale(2); 2]);
    let bus = server.bus();
    for slot in 0..5 {
        let id = format!("c{slot}");
        assert_eq!(bus.commit(&key(), slot, &id, commit(&id)).await.unwrap(), Committed::Ours);
    }
    let named = |found: Option<Vec<(u64, Commit)>>| -> Option<Vec<(u64, String)>> {
        Some(found?.into_iter().map(|(slot, commit)| (slot, commit.meta.commit)).collect())
    };
    let newest = bus.slots(&key(), 3..=4).await.unwrap();
    assert_eq!(named(newest), Some(vec![(3, "c3".to_owned()), (4, "c4".to_owned())]), "a stale read is asked again");
    assert_eq!(named(bus.slots(&key(), 4..=5).await.unwrap()), None, "nobody wrote the last one yet");
}

#[tokio::test(start_paused = true)]
async fn inbox_read_stale_shows_an_earlier_state() {
    let server = server(|action| action == Action::LastMany, &[Fault::None, Fault::Stale(1), Fault::Stale(2)]);
    let bus = server.bus();
    for name in ["a", "b"] {
        bus.send_control(&key(), Verb::Pause, &id(name), Bytes::new()).await.unwrap();
    }
    let pulled =
        bus.transport().pull(Queue::Inputs, 1, Duration::from_secs(1), CancellationToken::new()).await.unwrap();
    let first = pulled.boxed().next().await.unwrap().unwrap();
    bus.transport().ack(&first, Ack::Done).await.unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let Inbox::Messages(messages) = bus.inbox(&key()).await.unwrap() else { panic!("few") };
        seen.push(messages.into_iter().map(|message| message.seq).collect::<Vec<_>>());
    }
    assert_eq!(seen, [vec![2], vec![1, 2], vec![1]]);
}

#[tokio::test(start_paused = true)]
async fn claim_answer_lost_owner_is_known() {
    let server = server(|action| action == Action::KvCreate, &[Fault::AckLost, Fault::NotDone]);
    let (bus, call) = (server.bus(), CallId::tool(1, 1, 1));
    assert_eq!(bus.claim(&key(), &call, &[], "a").await.unwrap(), Claim::Mine);
    assert_eq!(bus.claim(&key(), &call, &[], "b").await.unwrap(), Claim::Theirs("a".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn client_dead_or_frozen_does_nothing() {
    let server = MemoryServer::new();
    let (bus, lifecycle) = server.client("replica");
    let (other, subject) = (server.bus(), subject::log_slot(&key(), 0));
    lifecycle.freeze();
    let mut append = Box::pin(bus.transport().append(&subject, true, Vec::new(), Bytes::new()));
    assert!((&mut append).now_or_never().is_none());
    assert!(other.transport().last(Stream::Log, &subject, Read::Leader).await.unwrap().is_none());
    lifecycle.thaw();
    assert_eq!(append.await.unwrap(), Appended::Stored(1));
    lifecycle.kill();
    assert!(tokio::time::timeout(Duration::from_hours(1), bus.ping()).await.is_err());
    lifecycle.thaw();
    assert!(lifecycle.is_dead());

    // A crash between doing and knowing.
    let crash = MemoryServer::with_faults(Arc::new(Script(appends, Mutex::new([Fault::Crash { done: true }].into()))));
    let (bus, lifecycle) = crash.client("replica");
    let append = bus.transport().append(&subject, true, Vec::new(), Bytes::new());
    assert!(tokio::time::timeout(Duration::from_hours(1), append).await.is_err());
    assert!(lifecycle.is_dead());
    assert!(crash.bus().transport().last(Stream::Log, &subject, Read::Leader).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn timer_set_twice_is_due_at_the_later_time() {
    let server = MemoryServer::new();
    let bus = server.bus();
    bus.set_timer(&key(), 1, server.now().after(Duration::from_secs(10))).await.unwrap();
    bus.set_timer(&key(), 2, server.now().after(Duration::from_mins(10))).await.unwrap();
    let from = Instant::now();
    let stop = CancellationToken::new();
    let pulled = bus.transport().pull(Queue::Timers, 1, Duration::from_hours(1), stop).await.unwrap();
    let due = pulled.boxed().next().await.unwrap().unwrap();
    assert_eq!(&due.payload[..], br#"{"number":2}"#);
    assert_eq!(from.elapsed().as_secs(), 600);
}

fn linked(id: &str, prev: &str) -> Bytes {
    let meta = serde_json::json!({
        "v": 1, "commit": id, "prev": prev, "fold": 1, "phase": Phase::Running, "open": [], "control_seq": 0, "seq": 1,
        "time": "2024-01-15T10:30:45.123Z",
    });
    serde_json::to_vec(&serde_json::json!({ "meta": meta, "events": [] })).unwrap().into()
}

async fn offer(bus: &Bus, slot: u64, id: &str, prev: &str) -> Committed {
    let offer = Offer { slot, prev, commit: id, body: linked(id, prev), ttl: None };
    bus.commit_for(&key(), offer).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn older_store_with_the_same_sequences_commit_of_the_lost_history_is_refused() {
    let server = MemoryServer::new();
    let (first, second) = (server.bus(), server.bus());
    assert_eq!(offer(&first, 0, "a0", "").await, Committed::Ours);
    let older = server.backup(&[Stream::Log]);
    assert_eq!(offer(&first, 1, "a1", "a0").await, Committed::Ours);
    assert_eq!(offer(&first, 2, "a2", "a1").await, Committed::Ours);
    server.restore(&older);
    // The other writer's commits get the sequences of those that are lost.
    assert_eq!(offer(&second, 1, "b1", "a0").await, Committed::Ours);
    assert_eq!(offer(&second, 2, "b2", "b1").await, Committed::Ours);
    assert_eq!(offer(&first, 3, "a3", "a2").await, Committed::Theirs, "it was decided on a history that is lost");
    let written: Vec<String> = slots(&second).await.into_iter().map(|(_, id)| id).collect();
    assert_eq!(written, ["a0", "b1", "b2"]);
    assert_eq!(offer(&first, 3, "a3", "b2").await, Committed::Ours, "the cached sequence is corrected downwards");
}

/// Our append arrives between the two reads that look for it.
struct Late(Mutex<Option<Bus>>);

impl Faults for Late {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let filter = subject::log_session(&key());
        if op.action == Action::Last(Read::Leader)
            && op.subject == filter.as_str()
            && let Some(bus) = self.0.lock().unwrap().take()
        {
            let slot = subject::log_slot(&key(), 7);
            let append = bus.transport().append(&slot, false, Vec::new(), linked("ours", ""));
            append.now_or_never().unwrap().unwrap();
        }
        if op.action == Action::Append && op.client == "writer" {
            return Fault::Doubtful { code: 10_071, stored: false };
        }
        Fault::None
    }
}

#[tokio::test(start_paused = true)]
async fn first_commit_that_arrives_late_is_ours_and_not_another_ones() {
    let late = Arc::new(Late(Mutex::new(None)));
    let server = MemoryServer::with_faults(late.clone());
    *late.0.lock().unwrap() = Some(server.client("helper").0);
    let writer = server.client("writer").0;
    let offer = Offer { slot: 7, prev: "", commit: "ours", body: linked("ours", ""), ttl: None };
    assert_eq!(writer.commit_first(&key(), offer).await.unwrap(), Committed::Ours);
}
