//! A server that comes back with an older copy of some of its streams.

use std::time::Duration;

use bus::{BusError, Read};
use contract::command::{ControlReason, Verb};
use contract::commit::{Commit, CommitMeta};
use contract::event::Event;
use contract::ids::CallAttempt;
use contract::repair::RepairReply;
use contract::streams::Stream;
use contract::subject::{self, SessionKey};
use contract::{CallId, SessionId};

use crate::world::{World, drain, first_model_call, key, next_code};

#[tokio::test(start_paused = true)]
async fn control_stream_created_again_commands_are_handled() {
    let mut world = World::new().await;
    let empty = world.server.backup(&[Stream::Control]);
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    for verb in [Verb::Pause, Verb::Resume, Verb::Pause] {
        world.control(verb).await;
    }
    world.server.restore(&empty);
    // The new stream counts from 1, and the session has handled sequence 4.
    let event = world.control(Verb::Resume).await;
    assert!(matches!(event, Event::InputHandled(_)), "{event:?}");
    assert!(world.log().await.last().unwrap().1.meta.control_seq < 4, "the recorded sequence follows the stream");
    world.control(Verb::Stop).await;
}

#[tokio::test(start_paused = true)]
async fn log_restored_session_continues_and_reports_lost_history() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let older = world.server.backup(&[Stream::Log]);
    let kept = world.log().await.len();
    for verb in [Verb::Pause, Verb::Resume, Verb::Pause, Verb::Resume] {
        world.control(verb).await;
    }
    let mut errors = world.errors().await;
    world.server.restore(&older);
    assert_eq!(world.log().await.len(), kept);

    for verb in [Verb::Pause, Verb::Resume, Verb::Pause, Verb::Resume, Verb::Pause] {
        let event = world.control(verb).await;
        assert!(matches!(event, Event::InputHandled(_)), "{event:?}");
    }
    assert_eq!(next_code(&mut errors).await, "history_lost");
    // Reading it verifies that each commit names the one before it.
    assert_eq!(world.log().await.len(), kept + 5);
}

#[tokio::test(start_paused = true)]
async fn log_lacks_commits_and_streams_have_grown_again_queues_are_reset() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let older = world.server.backup(&[Stream::Log]);
    for verb in [Verb::Pause, Verb::Resume] {
        world.control(verb).await;
    }
    world.server.restore(&older);
    // Within a second the stream has all the sequences again that it had before.
    for verb in [Verb::Pause, Verb::Resume, Verb::Pause, Verb::Resume] {
        world.control(verb).await;
    }
    while world.bus.last_queue_reset().await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A cluster may come back with an older stream although no connection of ours breaks.
#[tokio::test(start_paused = true)]
async fn stream_replaced_behind_a_connection_that_stays_queues_are_reset_and_work_is_published_again() {
    let mut world = World::new().await;
    let empty = world.server.backup(&[Stream::Model, Stream::Timer]);
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    world.send_message("Hello").await;
    world.wait_for_message(Stream::Model, &first_model_call()).await;
    world.server.replace(&empty);
    world.wait_for_message(Stream::Model, &first_model_call()).await;
    assert!(world.bus.last_queue_reset().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn stream_replaced_and_grown_past_its_old_end_is_noticed_by_a_write() {
    let mut world = World::new().await;
    let empty = world.server.backup(&[Stream::Model]);
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    world.send_message("Hello").await;
    world.wait_for_message(Stream::Model, &first_model_call()).await;
    // The resume publishes the open call again, with a sequence that was given out before.
    world.control(Verb::Pause).await;
    world.server.replace(&empty);
    world.control(Verb::Resume).await;
    let published = world.wait_for_message(Stream::Model, &first_model_call()).await;
    assert_eq!(published.seq, 1);
    // Before the streams are looked at, others have stored more than was lost.
    for other in 0..20 {
        let session = SessionKey { session: SessionId::new(&format!("other{other}")).unwrap(), ..key() };
        let call = CallAttempt { call: CallId::model(1, 1), attempt: 1 };
        let at = subject::model_item(&session, &call);
        world.bus.transport().append(&at, false, Vec::new(), "{}".into()).await.unwrap();
    }
    // Long before the streams are looked at anyway; the time is virtual.
    let mut looks = 0;
    while world.bus.last_queue_reset().await.unwrap().is_none() {
        looks += 1;
        assert!(looks < 400, "nobody noticed it");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn session_resumed_item_of_its_open_call_replaces_the_one_that_waits() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    world.send_message("Hello").await;
    let mut before = world.wait_for_message(Stream::Model, &first_model_call()).await;
    // A worker that found the session paused has acknowledged the item; or is about to.
    for is_acknowledged in [true, false] {
        world.control(Verb::Pause).await;
        if is_acknowledged {
            world.bus.transport().delete(Stream::Model, &before).await.unwrap();
        }
        world.control(Verb::Resume).await;
        let after = loop {
            let found = world.wait_for_message(Stream::Model, &first_model_call()).await;
            if found.seq > before.seq {
                break found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!(bus::transport::header(&after.headers, contract::tool::header::AGAIN).is_some());
        before = after;
    }
}

#[tokio::test(start_paused = true)]
async fn store_restored_running_replica_reloads_and_handles_commands() {
    let mut world = World::new().await;
    let first = world.orchestrator().await;
    world.start().await;
    let older = world.server.backup(&[Stream::Log]);
    for verb in [Verb::Pause, Verb::Resume, Verb::Pause, Verb::Resume] {
        world.control(verb).await;
    }
    world.server.restore(&older);
    // Another replica writes a second history of the same length, whose messages get the same sequences.
    let second = world.orchestrator().await;
    for verb in [Verb::Pause, Verb::Resume, Verb::Pause, Verb::Resume] {
        world.control(verb).await;
    }
    drain(second).await;
    let event = world.control(Verb::Pause).await;
    assert!(matches!(event, Event::InputHandled(_)), "{event:?}");
    drain(first).await;
}

/// Writes a commit behind the last one that was decided on commits that the log lacks; returns the slot before it.
async fn write_foreign_commit(world: &World, id: &str) -> u64 {
    let (slot, last) = world.log().await.pop().unwrap();
    let meta = CommitMeta { commit: id.to_owned(), prev: "lost".to_owned(), seq: last.meta.seq + 1, ..last.meta };
    let body = serde_json::to_vec(&Commit { meta, snapshot: None, transcript: None, events: Vec::new() }).unwrap();
    world.bus.commit(&key(), slot + 1, id, body.into()).await.unwrap();
    assert!(matches!(world.bus.load(&key()).await, Err(BusError::TwoHistories { .. })));
    slot
}

async fn wait_until_removed(world: &World, id: &str) {
    while world.bus.head(&key(), Read::Leader).await.unwrap().is_some_and(|head| head.meta.commit == id) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_commit_at_log_end_is_removed_and_session_continues() {
    let mut world = World::new().await;
    let mut orchestrator = world.orchestrator().await;
    world.start().await;
    for (id, verb) in [("cached", Verb::Pause), ("not-cached", Verb::Resume)] {
        let slot = write_foreign_commit(&world, id).await;
        if id == "not-cached" {
            drain(orchestrator).await;
            orchestrator = world.orchestrator().await;
        }
        let command = world.send(verb, ControlReason::default()).await;
        wait_until_removed(&world, id).await;
        let event = world.wait_until_handled(&command).await;
        assert!(matches!(event, Event::InputHandled(_)), "{event:?}");
        let (next, commit) = world.log().await.pop().unwrap();
        assert_eq!((next, commit.meta.commit == id), (slot + 1, false));
    }
    drain(orchestrator).await;
}

#[tokio::test(start_paused = true)]
async fn repair_requested_foreign_commit_at_log_end_is_removed() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let slot = write_foreign_commit(&world, "foreign").await;
    assert!(matches!(world.bus.repair_session(&key()).await.unwrap(), RepairReply::Repaired(_)));
    assert_eq!(world.log().await.pop().unwrap().0, slot);
}

#[tokio::test(start_paused = true)]
async fn work_and_timers_lost_by_restore_are_published_again_without_input() {
    let mut world = World::new().await;
    let empty = world.server.backup(&[Stream::Model, Stream::Timer]);
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    world.send_message("Hello").await;
    world.wait_for_message(Stream::Model, &first_model_call()).await;
    let due = world.wait_for_message(Stream::Timer, &subject::timer_set(&key())).await;

    world.server.restore(&empty);
    world.wait_for_message(Stream::Model, &first_model_call()).await;
    assert_eq!(world.wait_for_message(Stream::Timer, &subject::timer_set(&key())).await.payload, due.payload);
}

#[tokio::test(start_paused = true)]
async fn work_lost_while_no_replica_ran_is_published_again_at_next_input() {
    let mut world = World::new().await;
    let empty = world.server.backup(&[Stream::Model, Stream::Timer]);
    let orchestrator = world.orchestrator().await;
    world.start().await;
    world.send_message("Hello").await;
    world.wait_for_message(Stream::Model, &first_model_call()).await;
    drain(orchestrator).await;
    world.server.restore(&empty);
    tokio::time::sleep(Duration::from_mins(1)).await;

    let _orchestrator = world.orchestrator().await;
    world.send_message("Are you there?").await;
    world.wait_for_message(Stream::Model, &first_model_call()).await;
    world.wait_for_message(Stream::Timer, &subject::timer_set(&key())).await;
}

#[tokio::test(start_paused = true)]
async fn work_lost_with_connection_is_published_again_by_new_replica() {
    let mut world = World::new().await;
    let empty = world.server.backup(&[Stream::Model, Stream::Timer]);
    let orchestrator = world.orchestrator().await;
    world.start().await;
    world.send_message("Hello").await;
    world.wait_for_message(Stream::Model, &first_model_call()).await;
    drain(orchestrator).await;
    world.server.restore(&empty);

    // The session was not quiet: its last commit is a few milliseconds old.
    let _orchestrator = world.orchestrator().await;
    world.send_message("Are you there?").await;
    world.wait_for_message(Stream::Model, &first_model_call()).await;
    world.wait_for_message(Stream::Timer, &subject::timer_set(&key())).await;
}

#[tokio::test(start_paused = true)]
async fn repair_requested_outstanding_work_is_published_again() {
    let mut world = World::new().await;
    let empty = world.server.backup(&[Stream::Model, Stream::Timer]);
    let orchestrator = world.orchestrator().await;
    world.start().await;
    world.send_message("Hello").await;
    drain(orchestrator).await;
    world.server.restore(&empty);
    let _orchestrator = world.orchestrator().await;
    let reply = loop {
        // The replica subscribes a moment after its start.
        match world.bus.repair_session(&key()).await {
            Err(BusError::NoResponders { .. }) => tokio::time::sleep(Duration::from_millis(50)).await,
            reply => break reply.unwrap(),
        }
    };
    let RepairReply::Repaired(lines) = reply else { panic!("refused") };
    assert!(lines.iter().any(|line| line == "model call m1-1.1"), "{lines:?}");
    world.wait_for_message(Stream::Model, &first_model_call()).await;
}

#[tokio::test(start_paused = true)]
async fn item_waiting_during_repair_is_replaced() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    world.send_message("Hello").await;
    let before = world.wait_for_message(Stream::Model, &first_model_call()).await;
    world.bus.repair_session(&key()).await.unwrap();
    let after = world.wait_for_message(Stream::Model, &first_model_call()).await;
    assert!(after.seq > before.seq, "{} and {}", before.seq, after.seq);
    assert!(bus::transport::header(&after.headers, contract::tool::header::AGAIN).is_some());
}

#[tokio::test(start_paused = true)]
async fn timer_of_lost_history_is_replaced() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let older = world.server.backup(&[Stream::Log]);
    // Each turn sets the timer: the numbers in the stream run ahead of those in the older log.
    world.send_message("Hello").await;
    world.control(Verb::Stop).await;
    let ahead = world.wait_for_message(Stream::Timer, &subject::timer_set(&key())).await;
    world.server.restore(&older);
    world.send_message("Once more").await;
    let set = world.wait_for_message(Stream::Timer, &subject::timer_set(&key())).await;
    assert_ne!(set.payload, ahead.payload);
    let number = |stored: &bus::Stored| serde_json::from_slice::<bus::timer::Due>(&stored.payload).unwrap().number;
    let head = world.bus.head(&key(), bus::Read::Leader).await.unwrap().unwrap();
    assert_eq!(number(&set), head.meta.timers, "the timer is that of the log");
}

#[tokio::test(start_paused = true)]
async fn index_line_of_lost_history_is_replaced_by_repair() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let before = world.bus.summary(&key()).await.unwrap();
    let older = world.server.backup(&[Stream::Log]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.control(Verb::Pause).await;
    let ahead = world.bus.summary(&key()).await.unwrap();
    assert!(before.is_some() && ahead != before, "{ahead:?}");
    world.server.restore(&older);
    world.bus.repair_session(&key()).await.unwrap();
    assert_eq!(world.bus.summary(&key()).await.unwrap(), before);
}
