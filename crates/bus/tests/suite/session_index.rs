//! Lines of the session index, which several replicas write.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::{Bus, BusError, Committed};
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use bytes::Bytes;
use contract::Timestamp;
use contract::commit::{Phase, SessionCounters, SessionSummary};
use contract::event::Spent;
use contract::streams::{Bucket, Stream};

use crate::support::key;

/// Notes the operations on the index and on the log, and loses the answer of the next update if told to.
#[derive(Default)]
struct Operations {
    seen: Mutex<Vec<Action>>,
    loses_update: Mutex<bool>,
}

impl Faults for Operations {
    fn decide(&self, op: Operation<'_>) -> Fault {
        self.seen.lock().unwrap().push(op.action);
        let is_lost = op.action == Action::KvUpdate && std::mem::take(&mut *self.loses_update.lock().unwrap());
        if is_lost { Fault::AckLost } else { Fault::None }
    }
}

impl Operations {
    fn take(&self) -> Vec<Action> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

/// The line of a session that started at `started` and changed last at `updated`, in milliseconds.
fn line(started: u64, updated: u64, seq: u64) -> SessionSummary {
    SessionSummary {
        session_id: key().session,
        tenant: key().tenant,
        phase: Phase::Running,
        agent: "helper".to_owned(),
        model: "m".to_owned(),
        title: String::new(),
        turn: 1,
        step: 1,
        seq,
        started: Timestamp::from_millis(started),
        updated: Timestamp::from_millis(updated),
        spent: Spent::default(),
        spent_own: None,
        stop_reason: None,
        parent: None,
        tally: SessionCounters::default(),
        gates: Vec::new(),
        client_calls: Vec::new(),
    }
}

/// Writes the commit of a line into the log.
async fn commit(bus: &Bus, slot: u64, line: &SessionSummary) {
    let id = format!("c{slot}-{}", line.updated);
    let meta = serde_json::json!({
        "v": 1, "commit": id, "fold": 1, "phase": Phase::Running, "open": [], "control_seq": 0, "seq": line.seq,
        "time": line.updated,
    });
    let body: Bytes = serde_json::to_vec(&serde_json::json!({ "meta": meta, "events": [] })).unwrap().into();
    assert_eq!(bus.commit(&key(), slot, &id, body).await.unwrap(), Committed::Ours);
}

async fn put(bus: &Bus, line: &SessionSummary) {
    bus.advance_summary(line, None).await.unwrap();
}

async fn stored(bus: &Bus) -> Option<SessionSummary> {
    bus.summary(&key()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn line_of_earlier_commit_written_last_is_not_stored() {
    let server = MemoryServer::new();
    let (one, two) = (server.bus(), server.bus());
    let lines = [line(1, 1, 1), line(1, 2, 2), line(1, 3, 3)];
    for (slot, line) in (0..).zip(&lines) {
        commit(&one, slot, line).await;
    }
    let [first, earlier, later] = lines;
    put(&one, &first).await;
    put(&two, &later).await;
    // This replica knows the revision of the first line only, a third one knows none.
    for bus in [one, server.bus()] {
        put(&bus, &earlier).await;
        assert_eq!(stored(&bus).await.as_ref(), Some(&later));
    }
}

#[tokio::test(start_paused = true)]
async fn line_of_session_started_again_replaces_that_of_the_erased_one() {
    let server = MemoryServer::new();
    let (one, two) = (server.bus(), server.bus());
    let (erased, again) = (line(1, 50, 90), line(60, 60, 2));
    put(&one, &erased).await;
    commit(&two, 0, &again).await;
    put(&two, &again).await;
    assert_eq!(stored(&two).await.as_ref(), Some(&again), "its number of events is lower");
    put(&one, &erased).await;
    assert_eq!(stored(&two).await.as_ref(), Some(&again));
}

#[tokio::test(start_paused = true)]
async fn line_deleted_or_expired_is_written_again() {
    let server = MemoryServer::new();
    let bus = server.bus();
    put(&bus, &line(1, 1, 1)).await;
    bus.delete_summary(&key()).await.unwrap();
    put(&bus, &line(1, 2, 2)).await;
    assert_eq!(stored(&bus).await, Some(line(1, 2, 2)));
    for (updated, bus) in [(3, bus), (4, server.bus())] {
        let age = Duration::from_hours(1);
        bus.advance_summary(&line(1, updated, updated), Some(age)).await.unwrap();
        tokio::time::advance(age).await;
        assert_eq!(stored(&bus).await, None, "it expired");
        bus.advance_summary(&line(1, updated, updated), Some(age)).await.unwrap();
        assert_eq!(stored(&bus).await, Some(line(1, updated, updated)));
        tokio::time::advance(age).await;
        assert_eq!(stored(&bus).await, None, "so does one that was created");
    }
}

#[tokio::test(start_paused = true)]
async fn line_of_lost_history_is_replaced_by_that_of_the_log() {
    let server = MemoryServer::new();
    let (one, two) = (server.bus(), server.bus());
    let lines = [line(1, 1, 1), line(1, 2, 5), line(1, 3, 9)];
    commit(&one, 0, &lines[0]).await;
    commit(&one, 1, &lines[1]).await;
    let older = server.backup(&[Stream::Log]);
    commit(&one, 2, &lines[2]).await;
    put(&one, &lines[2]).await;
    server.restore(&older);
    let name = format!("{}.{}", key().tenant, key().session);
    // A repair, by the replica that wrote the lost line and by another one.
    for bus in [&one, &two] {
        put(bus, &lines[1]).await;
        assert_eq!(stored(bus).await.as_ref(), Some(&lines[1]));
        put(bus, &lines[0]).await;
        assert_eq!(stored(bus).await.as_ref(), Some(&lines[1]), "the log has a later commit");
        let lost = serde_json::to_vec(&lines[2]).unwrap();
        bus.transport().kv_put(Bucket::Sessions, &name, lost.into(), None).await.unwrap();
    }
    // The session went on instead, with a later time and fewer events.
    let on = line(1, 7, 6);
    commit(&two, 2, &on).await;
    put(&two, &on).await;
    assert_eq!(stored(&two).await.as_ref(), Some(&on));
}

#[tokio::test(start_paused = true)]
async fn lines_of_one_replica_cost_one_request_each() {
    let operations = Arc::new(Operations::default());
    let server = MemoryServer::with_faults(operations.clone());
    let bus = server.bus();
    for (updated, expected) in [(1, Action::KvCreate), (2, Action::KvUpdate), (3, Action::KvUpdate)] {
        put(&bus, &line(1, updated, updated)).await;
        assert_eq!(operations.take(), [expected]);
    }
    // A session that this replica takes over costs a read.
    let other = server.bus();
    put(&other, &line(1, 4, 4)).await;
    assert_eq!(operations.take(), [Action::KvGet, Action::KvUpdate]);
    // After a restart revisions may be those of other lines.
    server.restart();
    put(&other, &line(1, 5, 5)).await;
    assert_eq!(operations.take(), [Action::KvGet, Action::KvUpdate]);
    put(&other, &line(1, 6, 6)).await;
    assert_eq!(operations.take(), [Action::KvUpdate]);
}

#[tokio::test(start_paused = true)]
async fn line_whose_answer_was_lost_is_followed_by_the_next() {
    let operations = Arc::new(Operations::default());
    let bus = MemoryServer::with_faults(operations.clone()).bus();
    put(&bus, &line(1, 1, 1)).await;
    *operations.loses_update.lock().unwrap() = true;
    let lost = bus.advance_summary(&line(1, 2, 2), None).await;
    assert!(matches!(lost, Err(BusError::Timeout { .. })), "a session does not wait for the index: {lost:?}");
    put(&bus, &line(1, 3, 3)).await;
    assert_eq!(stored(&bus).await, Some(line(1, 3, 3)));
}
