//! The log of an idle session is compacted, and any input goes on from the commit that is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bus::transport::ReadMany;
use bus_memory::{Action, Fault, Operation};
use contract::command::Verb;
use contract::commit::Phase;
use contract::event::Event;
use contract::limits::{COMPACT_AFTER, IDLE_MAX, RETENTION};
use contract::streams::Stream;
use contract::subject;
use loop_orchestrator::{Orchestrator, OrchestratorConfig};

use crate::world::{ServerClock, World, drain, key};

/// The slots that are in the log itself.
async fn in_log(world: &World) -> Vec<u64> {
    let found = world.bus.transport().last_many(Stream::Log, &[subject::log_session(&key())]).await.unwrap();
    let ReadMany::Messages(found) = found else { panic!("too many") };
    found.iter().map(|stored| subject::parse_log(&stored.subject).unwrap().slot).collect()
}

/// A session of four commits that nobody wants anything of.
async fn idle(world: &mut World) {
    world.start().await;
    for verb in [Verb::Pause, Verb::Resume, Verb::Pause] {
        world.control(verb).await;
    }
}

#[tokio::test(start_paused = true)]
async fn idle_log_is_compacted_and_the_next_command_goes_on() {
    let mut world = World::new().await;
    let orchestrator = world.orchestrator().await;
    idle(&mut world).await;
    tokio::time::sleep(COMPACT_AFTER + Duration::from_secs(10)).await;
    // The timer was set when there was something to compact, and fired once before its time.
    assert_eq!(in_log(&world).await, [5]);
    let log = world.log().await;
    assert_eq!(log.iter().map(|(slot, _)| *slot).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5], "the archive has the rest");
    assert!(log[5].1.events.iter().any(|event| matches!(event, Event::LogCompacted(_))) && log[5].1.snapshot.is_some());

    // Another replica, which has never seen the session, and an archive that has forgotten it.
    drain(orchestrator).await;
    tokio::time::sleep(RETENTION / 10).await;
    let _another = world.orchestrator().await;
    assert!(matches!(world.control(Verb::Resume).await, Event::InputHandled(_)));
    let (slot, last) = world.log().await.pop().unwrap();
    assert_eq!((slot, last.meta.phase, last.meta.prev.as_str()), (6, Phase::Idle, log[5].1.meta.commit.as_str()));
    let session = session::audit::audit(key(), &world.log().await, None);
    assert_eq!(session.differs, []);
}

/// The archive takes nothing.
fn no_archive(op: &Operation<'_>) -> Fault {
    if op.action == Action::Append && op.subject.starts_with("ai_archive.") { Fault::NotDone } else { Fault::None }
}

#[tokio::test(start_paused = true)]
async fn archive_is_away_log_keeps_its_commits_until_it_is_back() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    idle(&mut world).await;
    world.faults.set(Some(no_archive));
    tokio::time::sleep(COMPACT_AFTER + Duration::from_mins(1)).await;
    assert_eq!(in_log(&world).await, [0, 1, 2, 3, 4, 5], "nothing leaves the log before the archive has it");
    // A command does not wait for the archive.
    assert!(matches!(world.control(Verb::Resume).await, Event::InputHandled(_)));
    assert_eq!(in_log(&world).await, [0, 1, 2, 3, 4, 5, 6]);
    world.faults.set(None);
    tokio::time::sleep(COMPACT_AFTER * 2).await;
    let left = in_log(&world).await;
    assert_eq!(left.first(), Some(&5), "the timer of the compaction was handed back, and tried again: {left:?}");
    let slots: Vec<u64> = world.log().await.iter().map(|(slot, _)| *slot).collect();
    assert_eq!(slots, (0..=left[left.len() - 1]).collect::<Vec<_>>());
}

/// Refuses the first commit for the slot of the compaction as too large.
fn compaction_is_too_large(op: &Operation<'_>) -> Fault {
    static REFUSED: AtomicBool = AtomicBool::new(false);
    let is_compaction = op.action == Action::Append && op.subject == "ai_loop.log.default.s.0.5";
    if is_compaction && !REFUSED.swap(true, Ordering::Relaxed) { Fault::TooLarge } else { Fault::None }
}

#[tokio::test(start_paused = true)]
async fn session_too_large_for_one_commit_keeps_its_log_and_expires() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    idle(&mut world).await;
    world.faults.set(Some(compaction_is_too_large));
    tokio::time::sleep(COMPACT_AFTER + Duration::from_secs(10)).await;
    assert_eq!(in_log(&world).await, [0, 1, 2, 3, 4, 5]);
    let events = world.log().await.into_iter().flat_map(|(_, commit)| commit.events);
    assert!(!events.into_iter().any(|event| matches!(event, Event::LogCompacted(_))));
    tokio::time::sleep(IDLE_MAX).await;
    let head = world.bus.head(&key(), bus::Read::Leader).await.unwrap().unwrap();
    assert_eq!(head.meta.phase, Phase::Ended, "its timer was set again");
}

#[tokio::test(start_paused = true)]
async fn setting_decides_when_a_log_is_compacted() {
    let mut world = World::new().await;
    let clock = Arc::new(ServerClock { server: world.server.clone(), ahead: Duration::ZERO });
    let config = OrchestratorConfig { compact_after: 60, ..OrchestratorConfig::default() };
    let _orchestrator = Orchestrator::with_clock(config, world.server.bus(), clock).await.unwrap();
    idle(&mut world).await;
    tokio::time::sleep(Duration::from_secs(55)).await;
    assert_eq!(in_log(&world).await, [0, 1, 2, 3]);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(in_log(&world).await, [5]);
}
