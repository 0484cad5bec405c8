//! Pages move from the log to the archive: no crash loses one, and their slots stay closed to writers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bus::archive::Staying;
use bus::{Bus, BusError, Committed, Offer, Read};
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use bytes::Bytes;
use contract::commit::{PartRef, Phase};
use contract::ids::{SessionId, TenantId};
use contract::limits::{INLINE_BYTES_MAX, RETENTION};
use contract::streams::{Objects, Stream};
use contract::subject::{self, SessionKey};
use contract::tool::sha256_hex;

use crate::support::{PAGE, Reads, in_log, key};

/// A commit; some are large.
fn commit(slot: u64, archived: Option<u64>) -> Bytes {
    let phase = if archived.is_some() { Phase::Ended } else { Phase::Running };
    let meta = serde_json::json!({
        "v": 1, "commit": format!("c{slot}"), "fold": 1, "phase": phase, "open": [], "control_seq": 0, "seq": slot + 1,
        "time": "2024-01-15T10:30:45.123Z", "archived": archived,
    });
    let filler = if slot % 50 == 7 { "x".repeat(INLINE_BYTES_MAX) } else { String::new() };
    serde_json::to_vec(&serde_json::json!({ "meta": meta, "filler": filler, "events": [] })).unwrap().into()
}

async fn write(bus: &Bus, slots: std::ops::Range<u64>) {
    for slot in slots {
        let written = bus.commit(&key(), slot, &format!("c{slot}"), commit(slot, None)).await.unwrap();
        assert_eq!(written, Committed::Ours);
    }
}

/// Ends the log with a commit that stands alone.
async fn archive_all(bus: &Bus, slot: u64) {
    let ttl = Some(RETENTION);
    let (body, id) = (commit(slot, Some(slot)), format!("c{slot}"));
    let offer = Offer { slot, prev: "", commit: &id, body, ttl };
    assert_eq!(bus.commit_for(&key(), offer).await.unwrap(), Committed::Ours);
    bus.archive(&key(), slot, Staying::Nothing).await.unwrap();
}

async fn slots(bus: &Bus) -> Vec<u64> {
    let history = bus.history(&key(), 0).await.unwrap();
    assert!(history.iter().all(|(slot, commit)| commit.meta.commit == format!("c{slot}")));
    history.iter().map(|(slot, _)| *slot).collect()
}

async fn is_stored(bus: &Bus, store: Objects, slot: u64) -> bool {
    bus.transport().get_object(store, &sha256_hex(&commit(slot, None))).await.unwrap().is_some()
}

#[tokio::test(start_paused = true)]
async fn page_archived_reads_as_before() {
    let bus = MemoryServer::new().bus();
    write(&bus, 0..2 * PAGE + 5).await;
    let all: Vec<u64> = (0..2 * PAGE + 5).collect();
    bus.archive(&key(), PAGE, Staying::Nothing).await.unwrap();
    assert_eq!(in_log(&bus).await, (PAGE..2 * PAGE + 5).collect::<Vec<_>>());
    assert_eq!(slots(&bus).await, all);
    assert_eq!(bus.page(&key(), 0).await.unwrap().unwrap().len() as u64, PAGE);
    assert_eq!((bus.page_seq(&key(), 0).await.unwrap(), bus.page_seq(&key(), 1).await.unwrap()), (Some(1), Some(65)));
    assert_eq!(bus.commit_at(&key(), 7).await.unwrap().unwrap().meta.commit, "c7");
    let forked = bus.load_until(&key(), Some(9)).await.unwrap().unwrap();
    assert_eq!(forked.iter().map(|(slot, _)| *slot).collect::<Vec<_>>(), (0..=9).collect::<Vec<_>>());
    // Large bodies went along, and what the log still has keeps its own.
    for (slot, archived) in [(7, true), (57, true), (107, false)] {
        assert_eq!(is_stored(&bus, Objects::Blobs, slot).await, !archived, "{slot}");
        assert_eq!(is_stored(&bus, Objects::Archive, slot).await, archived, "{slot}");
    }
    bus.archive(&key(), PAGE, Staying::Nothing).await.unwrap();
    assert_eq!(slots(&bus).await, all, "archiving twice changes nothing");
}

/// A commit with a part of the transcript behind other parts.
fn commit_with_part(slot: u64, before: &[u64], with_snapshot: bool) -> Bytes {
    let mut commit: serde_json::Value = serde_json::from_slice(&commit(slot, None)).unwrap();
    commit["transcript"] = serde_json::json!({
        "before": before.iter().map(|slot| part(*slot)).collect::<Vec<_>>(),
        "messages": [format!("m{slot}")], "positions": [],
    });
    if with_snapshot {
        commit["snapshot"] = serde_json::json!({});
    }
    serde_json::to_vec(&commit).unwrap().into()
}

fn part(slot: u64) -> PartRef {
    PartRef { slot, commit: format!("c{slot}"), messages: 1 }
}

/// The messages of the parts before the first commit of what was read.
fn earlier(commits: &[(u64, contract::commit::Commit)]) -> Vec<String> {
    let first = commits[0].1.transcript.as_ref().unwrap();
    first.earlier.iter().flat_map(|part| &part.messages).map(|message| message.get().replace('"', "")).collect()
}

#[tokio::test(start_paused = true)]
async fn parts_of_the_transcript_stay_until_they_are_not_needed() {
    let bus = MemoryServer::new().bus();
    for slot in 0..4 * PAGE {
        let body = match slot {
            5 => commit_with_part(slot, &[], false),
            // A large body.
            57 => commit_with_part(slot, &[5], false),
            _ if slot == 3 * PAGE => commit_with_part(slot, &[5, 57], true),
            _ => commit(slot, None),
        };
        let written = bus.commit(&key(), slot, &format!("c{slot}"), body).await.unwrap();
        assert_eq!(written, Committed::Ours);
    }
    let all: Vec<u64> = (0..4 * PAGE).collect();
    let rest = |from: u64| from..4 * PAGE;
    let stay = Staying::Parts { kept: &[5, 57], leaving: &[] };
    for below in [PAGE, PAGE, 2 * PAGE] {
        bus.archive(&key(), below, stay).await.unwrap();
        assert_eq!(in_log(&bus).await, [5, 57].into_iter().chain(rest(below)).collect::<Vec<_>>());
        assert_eq!(slots(&bus).await, all);
    }
    let loaded = bus.load(&key()).await.unwrap().unwrap();
    assert_eq!((loaded[0].0, earlier(&loaded)), (3 * PAGE, vec!["m5".to_owned(), "m57".to_owned()]));
    assert_eq!(bus.transcript_part(&key(), &part(57)).await.unwrap().unwrap().before, [part(5)]);
    let other = PartRef { commit: "another".to_owned(), ..part(57) };
    assert_eq!(bus.transcript_part(&key(), &other).await.unwrap(), None);

    // One is not needed any more: only the archive has it.
    let large = sha256_hex(&commit_with_part(57, &[5], false));
    assert!(bus.transport().get_object(Objects::Blobs, &large).await.unwrap().is_some());
    bus.archive(&key(), 2 * PAGE, Staying::Parts { kept: &[5], leaving: &[57, 3 * PAGE] }).await.unwrap();
    assert_eq!(in_log(&bus).await, [5].into_iter().chain(rest(2 * PAGE)).collect::<Vec<_>>());
    assert_eq!(bus.transport().get_object(Objects::Blobs, &large).await.unwrap(), None);
    assert_eq!(earlier(&bus.load(&key()).await.unwrap().unwrap()), ["m5", "m57"]);

    // The end: nothing stays.
    archive_all(&bus, 4 * PAGE).await;
    assert_eq!(in_log(&bus).await, [4 * PAGE]);
    assert_eq!(slots(&bus).await, (0..=4 * PAGE).collect::<Vec<_>>());
    let end = bus.load_until(&key(), None).await.unwrap().unwrap();
    assert_eq!(earlier(&end), ["m5", "m57"]);
}

#[tokio::test(start_paused = true)]
async fn session_archived_has_its_head_alone_until_it_expires() {
    let server = MemoryServer::new();
    let bus = server.bus();
    let end = PAGE + 20;
    write(&bus, 0..end).await;
    archive_all(&bus, end).await;
    assert_eq!(in_log(&bus).await, [end]);
    assert_eq!(slots(&bus).await, (0..=end).collect::<Vec<_>>());
    let loaded =
        |commits: Vec<(u64, contract::commit::Commit)>| commits.iter().map(|(slot, _)| *slot).collect::<Vec<_>>();
    assert_eq!(loaded(bus.load(&key()).await.unwrap().unwrap()), [end]);
    assert_eq!(loaded(bus.load_until(&key(), None).await.unwrap().unwrap()), (PAGE..end).collect::<Vec<_>>());
    assert_eq!(loaded(bus.head_page(&key()).await.unwrap()), (PAGE..=end).collect::<Vec<_>>());
    // A late writer gets the next slot, and its commit is the head alone as well.
    let body = commit(end + 1, Some(end));
    let offer = Offer { slot: end + 1, prev: "", commit: "late", body, ttl: Some(RETENTION) };
    let late = bus.commit_for(&key(), offer).await.unwrap();
    assert_eq!(late, Committed::Ours);
    assert_eq!(loaded(bus.load(&key()).await.unwrap().unwrap()), [end + 1]);

    tokio::time::advance(RETENTION + Duration::from_secs(1)).await;
    assert_eq!(bus.head(&key(), Read::Leader).await.unwrap(), None);
    assert_eq!(slots(&bus).await, Vec::<u64>::new());
    write(&bus, 0..1).await;
    assert_eq!(slots(&bus).await, [0], "the id is free");
}

#[tokio::test(start_paused = true)]
async fn slot_of_an_archived_page_written_commit_is_refused() {
    let server = MemoryServer::new();
    let (bus, late) = (server.bus(), server.bus());
    write(&bus, 0..10).await;
    late.load(&key()).await.unwrap();
    let idle = server.bus();
    write(&bus, 10..2 * PAGE + 1).await;
    bus.archive(&key(), PAGE, Staying::Nothing).await.unwrap();
    for (writer, slot) in [(&late, 10), (&idle, 0), (&idle, 10), (&late, 2 * PAGE)] {
        let body = commit(slot, None);
        assert_eq!(writer.commit(&key(), slot, "late", body).await.unwrap(), Committed::Theirs, "{slot}");
    }
    let head = bus.head(&key(), Read::Leader).await.unwrap().unwrap();
    assert_eq!((head.slot, head.meta.commit.as_str()), (2 * PAGE, "c128"));
}

#[tokio::test(start_paused = true)]
async fn archived_page_of_an_earlier_session_is_replaced() {
    let bus = MemoryServer::new().bus();
    let others: Vec<Bytes> = (0..PAGE).map(|slot| commit(slot + 1_000, None)).collect();
    bus.put_archived(&key(), 0, others).await.unwrap();
    write(&bus, 0..2 * PAGE + 1).await;
    assert_eq!(slots(&bus).await.len() as u64, 2 * PAGE + 1, "the log goes first");
    bus.archive(&key(), PAGE, Staying::Nothing).await.unwrap();
    assert_eq!(slots(&bus).await.len() as u64, 2 * PAGE + 1);
    assert_eq!(bus.commit_at(&key(), 3).await.unwrap().unwrap().meta.commit, "c3");
}

#[tokio::test(start_paused = true)]
async fn page_expired_in_the_archive_is_left_out() {
    let bus = MemoryServer::new().bus();
    write(&bus, 0..3 * PAGE).await;
    bus.archive(&key(), PAGE, Staying::Nothing).await.unwrap();
    tokio::time::advance(RETENTION + Duration::from_secs(1)).await;
    bus.archive(&key(), 2 * PAGE, Staying::Nothing).await.unwrap();
    assert_eq!(slots(&bus).await, (PAGE..3 * PAGE).collect::<Vec<_>>());
    assert!(bus.page(&key(), 0).await.unwrap().is_none());
    assert!(bus.load_until(&key(), Some(9)).await.unwrap().is_none());
}

/// Injects a fault into one operation of the worker, counted from 0.
struct Nth {
    at: usize,
    fault: Fault,
    count: AtomicUsize,
}

impl Faults for Nth {
    fn decide(&self, op: Operation<'_>) -> Fault {
        if op.client == "worker" && self.count.fetch_add(1, Ordering::SeqCst) == self.at {
            return self.fault;
        }
        Fault::None
    }
}

/// With a fault at any one operation all commits stay readable at every moment, and another run completes the move.
#[tokio::test(start_paused = true)]
async fn archiving_with_a_fault_at_any_operation_loses_nothing() {
    let end = PAGE + 9;
    let faults = [
        Fault::Crash { done: false },
        Fault::Crash { done: true },
        Fault::NotDone,
        Fault::AckLost,
        Fault::Stale(70),
        Fault::Doubtful { code: 10_071, stored: true },
        Fault::Doubtful { code: 10_164, stored: false },
        Fault::Doubtful { code: 0, stored: false },
    ];
    for fault in faults {
        // Most of it is one removal after the other.
        for nth in (0..24).chain((24..).step_by(9)) {
            let hit = Arc::new(Nth { at: nth, fault, count: AtomicUsize::new(0) });
            let server = MemoryServer::with_faults(hit.clone());
            let (worker, _life) = server.client("worker");
            let bus = server.bus();
            write(&bus, 0..end).await;
            let (body, id) = (commit(end, Some(end)), format!("c{end}"));
            let offer = Offer { slot: end, prev: "", commit: &id, body, ttl: Some(RETENTION) };
            bus.commit_for(&key(), offer).await.unwrap();
            // A dead client never returns an answer.
            let done =
                tokio::time::timeout(Duration::from_hours(1), worker.archive(&key(), end, Staying::Nothing)).await;
            if let Ok(Err(error)) = &done {
                assert!(
                    matches!(error, BusError::Unavailable(_) | BusError::Timeout { .. }),
                    "{fault:?} {nth}: {error}"
                );
            }
            let all: Vec<u64> = (0..=end).collect();
            assert_eq!(slots(&bus).await, all, "{fault:?} at {nth}, {:?}", in_log(&bus).await);
            bus.archive(&key(), end, Staying::Nothing).await.unwrap();
            assert_eq!(in_log(&bus).await, [end], "{fault:?} at {nth}");
            assert_eq!(slots(&bus).await, all, "{fault:?} at {nth}");
            assert!(!is_stored(&bus, Objects::Blobs, 7).await && !is_stored(&bus, Objects::Blobs, 57).await);
            if hit.count.load(Ordering::SeqCst) <= nth {
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn session_grows_loading_costs_the_same_number_of_reads() {
    let reads = Arc::new(Reads::default());
    let bus = MemoryServer::with_faults(reads.clone()).bus();
    let mut costs = std::collections::BTreeSet::new();
    for page in 0..20 {
        write(&bus, page * PAGE..(page + 1) * PAGE).await;
        if page > 1 {
            bus.archive(&key(), (page - 1) * PAGE, Staying::Nothing).await.unwrap();
        }
        let before = reads.0.load(Ordering::SeqCst);
        let loaded = bus.load(&key()).await.unwrap().unwrap();
        costs.insert((loaded.len(), reads.0.load(Ordering::SeqCst) - before));
        assert!(in_log(&bus).await.len() as u64 <= 3 * PAGE);
    }
    assert_eq!(costs.len(), 1, "{costs:?}");
}

#[tokio::test(start_paused = true)]
async fn archived_page_of_an_earlier_session_of_the_id_fills_no_hole() {
    let server = MemoryServer::new();
    let bus = server.bus();
    // The earlier session: its first page is in the archive, its log is gone.
    let earlier: Vec<Bytes> = (0..PAGE).map(|slot| linked(slot, "old")).collect();
    bus.put_archived(&key(), 0, earlier).await.unwrap();
    for slot in 0..4 {
        bus.commit(&key(), slot, &format!("new{slot}"), linked(slot, "new")).await.unwrap();
    }
    // Slot 2 is lost, as after a power cut.
    let lost = bus.transport().last(Stream::Log, &subject::log_slot(&key(), 2), Read::Leader).await.unwrap().unwrap();
    bus.transport().delete(Stream::Log, &lost).await.unwrap();
    let read = bus.load(&key()).await;
    assert!(matches!(read, Err(BusError::Unavailable(_))), "another session's commit fills the hole: {read:?}");
}

/// A commit that names the one before it.
fn linked(slot: u64, session: &str) -> Bytes {
    let prev = slot.checked_sub(1).map(|before| format!("{session}{before}"));
    let meta = serde_json::json!({
        "v": 1, "commit": format!("{session}{slot}"), "prev": prev.unwrap_or_default(), "fold": 1, "phase": Phase::Running,
        "open": [], "control_seq": 0, "seq": slot + 1, "time": "2024-01-15T10:30:45.123Z",
    });
    serde_json::to_vec(&serde_json::json!({ "meta": meta, "events": [] })).unwrap().into()
}

#[tokio::test]
async fn commit_behind_the_head_of_a_moved_session_is_refused_once_it_is_back() {
    let bus = MemoryServer::new().bus();
    write(&bus, 0..2).await;
    let offer = |slot, id: &'static str| Offer { slot, prev: "", commit: id, body: commit(slot, None), ttl: None };
    // The session comes back in slot 70, in the place of what kept its id.
    let back = bus.commit_behind_head(&key(), offer(70, "c70"), "c1").await.unwrap();
    assert_eq!(back, Committed::Ours);
    assert_eq!(bus.commit_behind_head(&key(), offer(70, "c70"), "c1").await.unwrap(), Committed::Ours, "repeated");
    // A replica that slept decided on the head before it. Its slot is free, and the one before it is as it was.
    assert_eq!(bus.commit_behind_head(&key(), offer(2, "c2"), "c1").await.unwrap(), Committed::Theirs);
    assert_eq!(bus.head(&key(), Read::Leader).await.unwrap().map(|head| head.slot), Some(70));
    let nothing = SessionKey { tenant: TenantId::default(), session: SessionId::new("other").unwrap() };
    assert_eq!(bus.commit_behind_head(&nothing, offer(0, "c0"), "c1").await.unwrap(), Committed::Theirs);
}

/// Answers the worker's write to the archive ten seconds late.
struct LateArchive;

impl Faults for LateArchive {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let is_late = op.client == "worker" && op.action == Action::Append && op.subject.starts_with("ai_archive.");
        if is_late { Fault::Lag(Duration::from_secs(10)) } else { Fault::None }
    }
}

#[tokio::test(start_paused = true)]
async fn older_store_comes_back_while_a_page_is_archived_no_other_message_is_removed() {
    let server = MemoryServer::with_faults(Arc::new(LateArchive));
    let (worker, _life) = server.client("worker");
    let bus = server.bus();
    // A large body, which would go before its message.
    let mut first: serde_json::Value = serde_json::from_slice(&commit(0, None)).unwrap();
    first["events"] = serde_json::json!(["y".repeat(INLINE_BYTES_MAX)]);
    let first = Bytes::from(first.to_string());
    assert_eq!(bus.commit(&key(), 0, "c0", first.clone()).await.unwrap(), Committed::Ours);
    write(&bus, 1..10).await;
    let older = server.backup(&[Stream::Log]);
    write(&bus, 10..PAGE + 1).await;
    let other = SessionKey { tenant: TenantId::default(), session: SessionId::new("other").unwrap() };
    let restored = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        server.restore(&older);
        // They get the sequences of the commits that are lost.
        for slot in 0..PAGE {
            let body = commit(slot, None);
            assert_eq!(bus.commit(&other, slot, &format!("c{slot}"), body).await.unwrap(), Committed::Ours);
        }
    };
    let session = key();
    let (archived, ()) = tokio::join!(worker.archive(&session, PAGE, Staying::Nothing), restored);
    assert!(matches!(archived, Err(BusError::Unavailable(_))), "{archived:?}");
    assert_eq!(bus.transport().count(Stream::Log, &subject::log_session(&other)).await.unwrap(), PAGE);
    assert_eq!(in_log(&bus).await, (0..10).collect::<Vec<_>>());
    assert!(bus.transport().get_object(Objects::Blobs, &sha256_hex(&first)).await.unwrap().is_some());
}
