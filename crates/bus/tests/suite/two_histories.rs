//! A log with commits that were decided on another history than the one before them.

use std::sync::{Arc, Mutex};

use bus::{Bus, BusError, Committed, Offer};
use bus_memory::{Action, Backup, Fault, Faults, MemoryServer, Operation};
use bytes::Bytes;
use contract::commit::Phase;
use contract::streams::Stream;
use contract::subject;
use futures::FutureExt;

use crate::support::{PAGE, in_log, key};

fn commit(id: &str, prev: &str) -> Bytes {
    let meta = serde_json::json!({
        "v": 1, "commit": id, "prev": prev, "fold": 1, "phase": Phase::Running, "open": [], "control_seq": 0, "seq": 1,
        "time": "2024-01-15T10:30:45.123Z",
    });
    serde_json::to_vec(&serde_json::json!({ "meta": meta, "events": [] })).unwrap().into()
}

/// Writes commits, each with the one that it names, whatever stands before it.
async fn write(bus: &Bus, first: u64, commits: &[(&str, &str)]) {
    for (slot, (id, prev)) in (first..).zip(commits) {
        assert_eq!(bus.commit(&key(), slot, id, commit(id, prev)).await.unwrap(), Committed::Ours);
    }
}

/// The ids of the commits that a load reads.
async fn load(bus: &Bus) -> Result<Vec<String>, BusError> {
    let commits = bus.load(&key()).await?.unwrap_or_default();
    Ok(commits.into_iter().map(|(_, commit)| commit.meta.commit).collect())
}

/// The slot with which an end of another history begins, as a load finds it.
async fn foreign_end(bus: &Bus) -> u64 {
    match load(bus).await {
        Err(error @ BusError::TwoHistories { slot, .. }) => {
            assert!(!error.is_final(), "it is removed soon");
            slot
        }
        read => panic!("the end is not found: {read:?}"),
    }
}

/// Action of a test before the next operation of its kind.
type Before = (Action, Box<dyn FnOnce() + Send>);

/// Acts before the next operation of a kind.
#[derive(Clone, Default)]
struct Act(Arc<Mutex<Option<Before>>>);

impl Act {
    fn before(&self, action: Action, act: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap() = Some((action, Box::new(act)));
    }
}

impl Faults for Act {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let act = self.0.lock().unwrap().take_if(|(action, _)| *action == op.action);
        if let Some((_, act)) = act {
            act();
        }
        Fault::None
    }
}

/// Puts the log back to an older state, and writes other commits behind it.
fn put_back(server: &MemoryServer, older: &Backup, first: u64, commits: &[(&str, &str)]) {
    server.restore(older);
    write(&server.bus(), first, commits).now_or_never().unwrap();
}

#[tokio::test(start_paused = true)]
async fn older_store_comes_back_during_append_commit_is_reported_and_removed() {
    for first in [0, PAGE - 3] {
        let act = Act::default();
        let server = MemoryServer::with_faults(Arc::new(act.clone()));
        let writer = server.bus();
        for slot in 0..first {
            let id = format!("c{slot}");
            writer.commit(&key(), slot, &id, commit(&id, "")).await.unwrap();
        }
        write(&writer, first, &[("a0", "")]).await;
        let older = server.backup(&[Stream::Log]);
        write(&writer, first + 1, &[("a1", "a0"), ("a2", "a1")]).await;
        let restored = server.clone();
        // The other writer's commits get the sequences of those that are lost.
        act.before(Action::Append, move || put_back(&restored, &older, first + 1, &[("b1", "a0"), ("b2", "b1")]));
        let offer = Offer { slot: first + 3, prev: "a2", commit: "a3", body: commit("a3", "a2"), ttl: None };
        let refused = writer.commit_for(&key(), offer.clone()).await;
        assert!(matches!(refused, Err(BusError::TwoHistories { .. })), "it was decided on what is lost: {refused:?}");

        let reader = server.bus();
        let slot = foreign_end(&reader).await;
        assert_eq!((slot, reader.remove_foreign_end(&key(), slot).await.unwrap()), (first + 3, 1));
        assert_eq!(load(&reader).await.unwrap().last().unwrap(), "b2");
        assert_eq!(writer.commit_for(&key(), offer).await.unwrap(), Committed::Theirs);
        let next = Offer { slot: first + 3, prev: "b2", commit: "b3", body: commit("b3", "b2"), ttl: None };
        assert_eq!(writer.commit_for(&key(), next).await.unwrap(), Committed::Ours);
    }
}

#[tokio::test(start_paused = true)]
async fn connection_breaks_during_append_next_commit_reads_its_predecessor() {
    let act = Act::default();
    let server = MemoryServer::with_faults(Arc::new(act.clone()));
    let writer = server.bus();
    write(&writer, 0, &[("a0", "")]).await;
    let restarted = server.clone();
    act.before(Action::Append, move || restarted.restart());
    let offer = |slot, prev, id| Offer { slot, prev, commit: id, body: commit(id, prev), ttl: None };
    assert_eq!(writer.commit_for(&key(), offer(1, "a0", "a1")).await.unwrap(), Committed::Ours);
    let read = Arc::new(Mutex::new(false));
    let seen = read.clone();
    act.before(Action::Last(bus::Read::Leader), move || *seen.lock().unwrap() = true);
    assert_eq!(writer.commit_for(&key(), offer(2, "a1", "a2")).await.unwrap(), Committed::Ours);
    assert!(*read.lock().unwrap(), "the sequence was learned over an earlier connection");
}

#[tokio::test(start_paused = true)]
async fn foreign_end_of_several_commits_is_removed_newest_first() {
    let act = Act::default();
    let server = MemoryServer::with_faults(Arc::new(act.clone()));
    let bus = server.bus();
    write(&bus, 0, &[("a0", ""), ("a1", "a0"), ("x2", "lost"), ("x3", "x2")]).await;
    // A writer that knows only that history adds a commit while its end is removed.
    let writer = server.bus();
    act.before(Action::Delete, move || write(&writer, 4, &[("x4", "x3")]).now_or_never().unwrap());
    let slot = foreign_end(&bus).await;
    assert_eq!((slot, bus.remove_foreign_end(&key(), slot).await.unwrap()), (2, 3));
    assert_eq!((load(&bus).await.unwrap(), in_log(&bus).await), (vec!["a0".to_owned(), "a1".to_owned()], vec![0, 1]));
    assert_eq!(bus.remove_foreign_end(&key(), slot).await.unwrap(), 0, "nothing is left of it");
}

#[tokio::test(start_paused = true)]
async fn commit_of_true_history_is_never_removed() {
    let bus = MemoryServer::new().bus();
    write(&bus, 0, &[("a0", ""), ("a1", "a0"), ("x2", "lost"), ("a3", "a2")]).await;
    let read = load(&bus).await;
    assert!(matches!(&read, Err(BusError::Malformed(why)) if why.contains("two histories")), "{read:?}");
    assert_eq!(bus.remove_foreign_end(&key(), 2).await.unwrap(), 0);
    let commits = bus.log_commits(&key()).await.unwrap();
    let breaks: Vec<u64> = bus::two_histories::find_breaks(&commits).into_iter().map(|found| found.slot).collect();
    assert_eq!(breaks, [2, 3]);
    // An operator decides.
    assert_eq!(bus.drop_from(&key(), 2, &["x2"].into()).await.unwrap(), 0, "the operator has not seen the last one");
    assert_eq!(bus.drop_from(&key(), 2, &["x2", "a3"].into()).await.unwrap(), 2);
    assert_eq!(load(&bus).await.unwrap(), ["a0", "a1"]);
}

#[tokio::test(start_paused = true)]
async fn page_begins_with_foreign_commit_it_is_found_also_below_others() {
    let bus = MemoryServer::new().bus();
    for slot in 0..PAGE {
        let id = format!("c{slot}");
        bus.commit(&key(), slot, &id, commit(&id, "")).await.unwrap();
    }
    for commits in [&[("x", "lost")][..], &[("x", "lost"), ("y", "x")]] {
        write(&bus, PAGE, commits).await;
        assert_eq!(foreign_end(&bus).await, PAGE);
        assert_eq!(bus.remove_foreign_end(&key(), PAGE).await.unwrap(), commits.len());
    }
}

/// Replicas are behind by this many changes.
struct Behind(Mutex<u64>);

impl Faults for Behind {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let is_read = matches!(op.action, Action::LastMany | Action::Last(bus::Read::Any));
        if is_read { Fault::Stale(*self.0.lock().unwrap()) } else { Fault::None }
    }
}

#[tokio::test(start_paused = true)]
async fn replica_shows_removed_commit_log_is_read_again() {
    let behind = Arc::new(Behind(Mutex::new(0)));
    let bus = MemoryServer::with_faults(behind.clone()).bus();
    write(&bus, 0, &[("a0", ""), ("x1", "lost")]).await;
    bus.remove_foreign_end(&key(), 1).await.unwrap();
    write(&bus, 1, &[("a1", "a0"), ("a2", "a1")]).await;
    // The replica has not removed the commit, and the leader has the last one.
    *behind.0.lock().unwrap() = 3;
    let read = bus.load_latest(&key()).await;
    assert!(matches!(read, Err(BusError::Unavailable(_))), "{read:?}");
    assert_eq!(bus.remove_foreign_end(&key(), 2).await.unwrap(), 0);
    *behind.0.lock().unwrap() = 0;
    assert_eq!(load(&bus).await.unwrap(), ["a0", "a1", "a2"]);
}

#[tokio::test(start_paused = true)]
async fn slot_missing_from_head_page_is_a_break() {
    let bus = MemoryServer::new().bus();
    write(&bus, 0, &[("a0", ""), ("a1", "a0"), ("a2", "a1")]).await;
    let stored = bus.transport().last(Stream::Log, &subject::log_slot(&key(), 1), bus::Read::Leader).await.unwrap();
    bus.transport().delete(Stream::Log, &stored.unwrap()).await.unwrap();
    let breaks = bus::two_histories::find_breaks(&bus.log_commits(&key()).await.unwrap());
    assert_eq!(
        breaks.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["slot 2 follows commit a1, but nothing stands before it: two histories"]
    );
    assert_eq!(bus.drop_from(&key(), 2, &["a2"].into()).await.unwrap(), 1);
}
