//! Logs that begin with a commit that stands alone: they are read without what is in the archive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bus::archive::Staying;
use bus::{Bus, BusError, Committed, Offer, Read};
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use bytes::Bytes;
use contract::commit::{Commit, Phase};
use contract::limits::{INLINE_BYTES_MAX, RETENTION};
use contract::streams::Stream;
use contract::subject;
use contract::tool::sha256_hex;

use crate::support::{PAGE, Reads, in_log, key};

/// A commit of a log that begins with slot `log_start`.
fn commit(slot: u64, log_start: Option<u64>, bytes: usize) -> Bytes {
    let prev = slot.checked_sub(1).map_or_else(String::new, |before| format!("c{before}"));
    let meta = serde_json::json!({
        "v": 1, "commit": format!("c{slot}"), "prev": prev, "fold": 1, "phase": Phase::Idle, "open": [],
        "control_seq": 0, "seq": slot + 1, "time": "2024-01-15T10:30:45.123Z", "log_start": log_start,
    });
    serde_json::to_vec(&serde_json::json!({ "meta": meta, "filler": noise(slot, bytes), "events": [] })).unwrap().into()
}

/// Hexadecimal digits that take half of their bytes at least, however they are compressed.
fn noise(seed: u64, bytes: usize) -> String {
    let mut noise = String::new();
    for block in 0..bytes.div_ceil(64) {
        noise += &sha256_hex(format!("{seed} {block}").as_bytes());
    }
    noise.truncate(bytes);
    noise
}

async fn write(bus: &Bus, slots: std::ops::Range<u64>, log_start: Option<u64>) {
    for slot in slots {
        write_large(bus, slot, log_start, 0).await;
    }
}

async fn write_large(bus: &Bus, slot: u64, log_start: Option<u64>, bytes: usize) {
    let (body, id) = (commit(slot, log_start, bytes), format!("c{slot}"));
    let offer = Offer { slot, prev: "", commit: &id, body, ttl: None };
    assert_eq!(bus.commit_for(&key(), offer).await.unwrap(), Committed::Ours);
}

/// Compacts the log with the commit of this slot.
async fn compact(bus: &Bus, slot: u64) {
    write(bus, slot..slot + 1, Some(slot)).await;
    bus.archive(&key(), slot, Staying::Nothing).await.unwrap();
}

fn slots(commits: &[(u64, Commit)]) -> Vec<u64> {
    assert!(commits.iter().all(|(slot, commit)| commit.meta.commit == format!("c{slot}")));
    commits.iter().map(|(slot, _)| *slot).collect()
}

async fn history(bus: &Bus) -> Vec<u64> {
    slots(&bus.history(&key(), 0).await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn compacted_log_is_loaded_by_one_read() {
    let reads = Arc::new(Reads::default());
    let bus = MemoryServer::with_faults(reads.clone()).bus();
    write(&bus, 0..10, None).await;
    compact(&bus, 10).await;
    assert_eq!(in_log(&bus).await, [10]);
    let before = reads.0.load(Ordering::SeqCst);
    assert_eq!(slots(&bus.load(&key()).await.unwrap().unwrap()), [10]);
    assert_eq!(reads.0.load(Ordering::SeqCst) - before, 1);
    assert_eq!(slots(&bus.load_until(&key(), None).await.unwrap().unwrap()), [10]);
    assert_eq!(slots(&bus.load_until(&key(), Some(7)).await.unwrap().unwrap()), (0..=7).collect::<Vec<_>>());
    assert_eq!(history(&bus).await, (0..=10).collect::<Vec<_>>());
    assert_eq!(slots(&bus.head_page(&key()).await.unwrap()), (0..=10).collect::<Vec<_>>());
    assert_eq!(bus.page_seq(&key(), 0).await.unwrap(), Some(1));

    // It goes on, over the end of its page.
    write(&bus, 11..PAGE + 3, Some(10)).await;
    assert_eq!(slots(&bus.load(&key()).await.unwrap().unwrap()), [PAGE, PAGE + 1, PAGE + 2]);
    assert_eq!(history(&bus).await, (0..PAGE + 3).collect::<Vec<_>>());
    bus.archive(&key(), PAGE, Staying::Nothing).await.unwrap();
    assert_eq!(in_log(&bus).await, (PAGE..PAGE + 3).collect::<Vec<_>>());
    assert_eq!(history(&bus).await, (0..PAGE + 3).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn log_compacted_several_times_in_a_page_keeps_one_archived_page() {
    let bus = MemoryServer::new().bus();
    write(&bus, 0..5, None).await;
    compact(&bus, 5).await;
    write(&bus, 6..9, Some(5)).await;
    compact(&bus, 9).await;
    write(&bus, 10..40, Some(9)).await;
    compact(&bus, 40).await;
    assert_eq!(in_log(&bus).await, [40]);
    assert_eq!(history(&bus).await, (0..=40).collect::<Vec<_>>());
    let pages = bus.transport().count(Stream::Archive, &subject::archive_page(&key(), 0)).await.unwrap();
    assert_eq!(pages, 1);
    bus.archive(&key(), 40, Staying::Nothing).await.unwrap();
    assert_eq!(history(&bus).await, (0..=40).collect::<Vec<_>>(), "archiving twice changes nothing");
}

#[tokio::test(start_paused = true)]
async fn compacted_log_outlives_what_the_archive_has_of_its_page() {
    let bus = MemoryServer::new().bus();
    write(&bus, 0..10, None).await;
    compact(&bus, 10).await;
    tokio::time::advance(RETENTION + Duration::from_secs(1)).await;
    assert_eq!(slots(&bus.load(&key()).await.unwrap().unwrap()), [10]);
    assert_eq!(slots(&bus.load_until(&key(), None).await.unwrap().unwrap()), [10]);
    assert_eq!(history(&bus).await, [10], "the rest is gone");
    assert_eq!(slots(&bus.head_page(&key()).await.unwrap()), [10]);
    assert!(bus.load_until(&key(), Some(7)).await.unwrap().is_none());

    // It goes on, and its page is archived without its beginning.
    write(&bus, 11..20, Some(10)).await;
    compact(&bus, 20).await;
    assert_eq!(in_log(&bus).await, [20]);
    assert_eq!(history(&bus).await, (10..=20).collect::<Vec<_>>());
    assert_eq!(bus.commit_at(&key(), 15).await.unwrap().unwrap().meta.commit, "c15");
    assert_eq!(bus.page_seq(&key(), 0).await.unwrap(), Some(11));
    write(&bus, 21..PAGE + 1, Some(20)).await;
    bus.archive(&key(), PAGE, Staying::Nothing).await.unwrap();
    assert_eq!(history(&bus).await, (10..=PAGE).collect::<Vec<_>>());
    // A hole that no compaction explains is an error.
    write(&bus, PAGE + 1..PAGE + 4, Some(20)).await;
    let slot = subject::log_slot(&key(), PAGE + 1);
    let lost = bus.transport().last(Stream::Log, &slot, Read::Leader).await.unwrap().unwrap();
    bus.transport().delete(Stream::Log, &lost).await.unwrap();
    let read = bus.history(&key(), 0).await;
    assert!(matches!(read, Err(BusError::Unavailable(_))), "{read:?}");
}

/// Shows the log to one client as it was some writes ago, once this is switched on.
#[derive(Default)]
struct Late(AtomicBool);

impl Faults for Late {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let is_late = op.client == "late" && op.action == Action::LastMany && self.0.swap(false, Ordering::SeqCst);
        if is_late { Fault::Stale(40) } else { Fault::None }
    }
}

#[tokio::test(start_paused = true)]
async fn slow_replica_does_not_replace_a_longer_page_by_a_shorter_one() {
    let faults = Arc::new(Late::default());
    let server = MemoryServer::with_faults(faults.clone());
    let (bus, (late, _life)) = (server.bus(), server.client("late"));
    write(&bus, 0..10, None).await;
    compact(&bus, 10).await;
    write(&bus, 11..20, Some(10)).await;
    compact(&bus, 20).await;
    faults.0.store(true, Ordering::SeqCst);
    late.archive(&key(), 10, Staying::Nothing).await.unwrap();
    assert!(!faults.0.load(Ordering::SeqCst), "it read the log as it was");
    assert_eq!(history(&bus).await, (0..=20).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn body_of_a_page_that_grows_is_replaced() {
    let bus = MemoryServer::new().bus();
    // Together they are too large for a message, also when they are compressed.
    for slot in 0..4 {
        write_large(&bus, slot, None, INLINE_BYTES_MAX / 2).await;
    }
    compact(&bus, 4).await;
    let object = |stored: bus::Stored| bus::body::object_of(&stored.payload).unwrap();
    let page = subject::archive_page(&key(), 0);
    let read = async || bus.transport().last(Stream::Archive, &page, Read::Leader).await.unwrap().unwrap();
    let first = object(read().await);
    write(&bus, 5..8, Some(4)).await;
    compact(&bus, 8).await;
    let second = object(read().await);
    let is_stored = async |object: &str| {
        bus.transport().get_object(contract::streams::Objects::Archive, object).await.unwrap().is_some()
    };
    assert_eq!((is_stored(&first).await, is_stored(&second).await), (false, true));
    assert_eq!(history(&bus).await, (0..=8).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn slot_of_a_compacted_log_written_commit_is_refused() {
    let server = MemoryServer::new();
    let (bus, late) = (server.bus(), server.bus());
    write(&bus, 0..10, None).await;
    late.load(&key()).await.unwrap();
    write(&bus, 10..12, None).await;
    compact(&bus, 12).await;
    for slot in [0, 5, 10, 12] {
        let written = late.commit(&key(), slot, "late", commit(slot, None, 0)).await.unwrap();
        assert_eq!(written, Committed::Theirs, "{slot}");
    }
    assert_eq!(in_log(&bus).await, [12]);
}
