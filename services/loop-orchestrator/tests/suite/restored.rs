//! A server that comes back with an older copy of some of its streams.

use std::time::Duration;

use bus::BusError;
use contract::command::Verb;
use contract::event::Event;
use contract::repair::RepairReply;
use contract::streams::Stream;
use contract::subject;

use crate::world::{World, end, key, model_call, next_code};

#[tokio::test(start_paused = true)]
async fn control_stream_made_anew_commands_are_handled_and_not_swallowed() {
    let mut world = World::new().await;
    let empty = world.server.backup(&[Stream::Control]);
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    for verb in [Verb::Pause, Verb::Resume, Verb::Pause] {
        world.tell(verb).await;
    }
    world.server.restore(&empty);
    // The new stream counts from 1, and the session has handled sequence 4.
    let event = world.tell(Verb::Resume).await;
    assert!(matches!(event, Event::InputHandled(_)), "{event:?}");
    assert!(world.log().await.last().unwrap().1.meta.control_seq < 4, "the mark follows the stream");
    world.tell(Verb::Stop).await;
}

#[tokio::test(start_paused = true)]
async fn log_put_back_session_goes_on_and_says_what_it_lost() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let older = world.server.backup(&[Stream::Log]);
    let kept = world.log().await.len();
    for verb in [Verb::Pause, Verb::Resume, Verb::Pause, Verb::Resume] {
        world.tell(verb).await;
    }
    let mut errors = world.errors().await;
    world.server.restore(&older);
    assert_eq!(world.log().await.len(), kept);

    for verb in [Verb::Pause, Verb::Resume, Verb::Pause, Verb::Resume, Verb::Pause] {
        let event = world.tell(verb).await;
        assert!(matches!(event, Event::InputHandled(_)), "{event:?}");
    }
    assert_eq!(next_code(&mut errors).await, "history_lost");
    // Reading it verifies that each commit names the one before it.
    assert_eq!(world.log().await.len(), kept + 5);
}

#[tokio::test(start_paused = true)]
async fn replica_that_outlived_the_restore_reloads_and_is_not_busy() {
    let mut world = World::new().await;
    let first = world.orchestrator().await;
    world.start().await;
    let older = world.server.backup(&[Stream::Log]);
    for verb in [Verb::Pause, Verb::Resume, Verb::Pause, Verb::Resume] {
        world.tell(verb).await;
    }
    world.server.restore(&older);
    // Another replica writes a second history of the same length, whose messages get the same sequences.
    let second = world.orchestrator().await;
    for verb in [Verb::Pause, Verb::Resume, Verb::Pause, Verb::Resume] {
        world.tell(verb).await;
    }
    end(second).await;
    let event = world.tell(Verb::Pause).await;
    assert!(matches!(event, Event::InputHandled(_)), "{event:?}");
    end(first).await;
}

#[tokio::test(start_paused = true)]
async fn work_and_timers_put_back_are_published_again_without_an_input() {
    let mut world = World::new().await;
    let empty = world.server.backup(&[Stream::Model, Stream::Timer]);
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    world.say("Hello").await;
    world.holds(Stream::Model, &model_call()).await;
    let due = world.holds(Stream::Timer, &subject::timer_set(&key())).await;

    world.server.restore(&empty);
    world.holds(Stream::Model, &model_call()).await;
    assert_eq!(world.holds(Stream::Timer, &subject::timer_set(&key())).await.payload, due.payload);
}

#[tokio::test(start_paused = true)]
async fn work_lost_while_no_replica_ran_is_published_again_when_an_input_comes() {
    let mut world = World::new().await;
    let empty = world.server.backup(&[Stream::Model, Stream::Timer]);
    let orchestrator = world.orchestrator().await;
    world.start().await;
    world.say("Hello").await;
    world.holds(Stream::Model, &model_call()).await;
    end(orchestrator).await;
    world.server.restore(&empty);
    tokio::time::sleep(Duration::from_mins(1)).await;

    let _orchestrator = world.orchestrator().await;
    world.say("Are you there?").await;
    world.holds(Stream::Model, &model_call()).await;
    world.holds(Stream::Timer, &subject::timer_set(&key())).await;
}

#[tokio::test(start_paused = true)]
async fn work_lost_with_the_connection_is_published_again_by_a_replica_that_never_had_the_session() {
    let mut world = World::new().await;
    let empty = world.server.backup(&[Stream::Model, Stream::Timer]);
    let orchestrator = world.orchestrator().await;
    world.start().await;
    world.say("Hello").await;
    world.holds(Stream::Model, &model_call()).await;
    end(orchestrator).await;
    world.server.restore(&empty);

    // The session was not quiet: its last commit is some milliseconds old.
    let _orchestrator = world.orchestrator().await;
    world.say("Are you there?").await;
    world.holds(Stream::Model, &model_call()).await;
    world.holds(Stream::Timer, &subject::timer_set(&key())).await;
}

#[tokio::test(start_paused = true)]
async fn repair_on_request_publishes_again_what_is_owed() {
    let mut world = World::new().await;
    let empty = world.server.backup(&[Stream::Model, Stream::Timer]);
    let orchestrator = world.orchestrator().await;
    world.start().await;
    world.say("Hello").await;
    end(orchestrator).await;
    world.server.restore(&empty);
    let _orchestrator = world.orchestrator().await;
    let reply = loop {
        // It takes a moment until the replica listens.
        match world.bus.repair_session(&key()).await {
            Err(BusError::NoResponders { .. }) => tokio::time::sleep(Duration::from_millis(50)).await,
            reply => break reply.unwrap(),
        }
    };
    let RepairReply::Repaired(lines) = reply else { panic!("refused") };
    assert!(lines.iter().any(|line| line == "model call m1-1.1"), "{lines:?}");
    world.holds(Stream::Model, &model_call()).await;
}

#[tokio::test(start_paused = true)]
async fn item_that_waits_is_replaced_by_a_repair_since_perhaps_nobody_is_given_it() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    world.say("Hello").await;
    let before = world.holds(Stream::Model, &model_call()).await;
    world.bus.repair_session(&key()).await.unwrap();
    let after = world.holds(Stream::Model, &model_call()).await;
    assert!(after.seq > before.seq, "{} and {}", before.seq, after.seq);
    assert!(bus::transport::header(&after.headers, contract::tool::header::AGAIN).is_some());
}

#[tokio::test(start_paused = true)]
async fn timer_of_a_lost_history_is_replaced() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let older = world.server.backup(&[Stream::Log]);
    // Each turn sets the timer: the numbers in the stream run ahead of those in the older log.
    world.say("Hello").await;
    world.tell(Verb::Stop).await;
    let ahead = world.holds(Stream::Timer, &subject::timer_set(&key())).await;
    world.server.restore(&older);
    world.say("Once more").await;
    let set = world.holds(Stream::Timer, &subject::timer_set(&key())).await;
    assert_ne!(set.payload, ahead.payload);
    let number = |stored: &bus::Stored| serde_json::from_slice::<bus::timer::Due>(&stored.payload).unwrap().number;
    let head = world.bus.head(&key(), bus::Read::Leader).await.unwrap().unwrap();
    assert_eq!(number(&set), head.meta.timers, "the timer is that of the log");
}
