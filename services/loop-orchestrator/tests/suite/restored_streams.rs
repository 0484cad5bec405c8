//! A server that comes back with an older copy of some of its streams.

use std::time::Duration;

use bus::BusError;
use contract::command::Verb;
use contract::event::Event;
use contract::repair::RepairReply;
use contract::streams::Stream;
use contract::subject;

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
async fn log_lacks_commits_and_streams_have_grown_again_waiting_work_is_replaced() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    world.send_message("Hello").await;
    let before = world.wait_for_message(Stream::Model, &first_model_call()).await;
    let older = world.server.backup(&[Stream::Log]);
    for verb in [Verb::Pause, Verb::Resume] {
        world.control(verb).await;
    }
    world.server.restore(&older);
    // Within a second the stream has all the sequences again that it had before.
    for verb in [Verb::Pause, Verb::Resume, Verb::Pause, Verb::Resume] {
        world.control(verb).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = world.wait_for_message(Stream::Model, &first_model_call()).await;
    assert!(after.seq > before.seq, "the consumer may never deliver the item that was there: {after:?}");
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
