//! A log that a newer version of the loop writes.

use std::time::Duration;

use bus_memory::{Action, Fault, Operation};
use contract::command::{CommandMeta, ControlReason, Verb};
use contract::commit::FOLD;
use contract::streams::Stream;
use contract::subject::{self, DeadKind};

use crate::world::{World, key};

/// The inbox lags behind, like a stream replica that is not up to date.
fn stale_inbox(op: &Operation<'_>) -> Fault {
    if op.action == Action::LastMany && op.subject.starts_with("ai_loop.control") {
        return Fault::Stale(1);
    }
    Fault::None
}

#[tokio::test(start_paused = true)]
async fn log_of_newer_version_client_command_is_left_to_newer_replicas() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let (slot, last) = world.log().await.pop().unwrap();
    let mut meta = last.meta.clone();
    (meta.fold, meta.prev, meta.commit, meta.seq) = (FOLD + 1, last.meta.commit, "newer".to_owned(), meta.seq + 1);
    let body = serde_json::json!({ "meta": meta, "events": [{ "type": "of_the_future" }] });
    world.bus.commit(&key(), slot + 1, "newer", body.to_string().into()).await.unwrap();

    world.faults.set(Some(stale_inbox));
    let waiting = world.send(Verb::Pause, ControlReason::default()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.faults.set(None);
    tokio::time::sleep(Duration::from_mins(1)).await;

    let log = world.log().await;
    assert_eq!(log.last().unwrap().1.meta.commit, "newer", "an older version decided on it: {log:#?}");
    let inbox = world.bus.inbox(&key()).await.unwrap();
    let bus::Inbox::Messages(messages) = inbox else { panic!("too many") };
    assert!(messages.iter().any(|message| message.subject.ends_with(waiting.as_str())), "the command waits");
}

#[tokio::test(start_paused = true)]
async fn unreadable_command_of_newer_version_waits_and_so_does_what_follows() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let newer = CommandMeta { fold: FOLD + 1, ..CommandMeta::new(world.server.now()) };
    let of_the_future = world.send_as(Verb::Pause, newer, serde_json::json!({"until": "tomorrow"})).await;
    let after = world.send(Verb::Resume, ControlReason::default()).await;
    tokio::time::sleep(Duration::from_mins(1)).await;

    let dead = world.bus.dead_letters(&key().tenant, None).await.unwrap().unwrap();
    assert!(dead.is_empty(), "{dead:#?}");
    let bus::Inbox::Messages(messages) = world.bus.inbox(&key()).await.unwrap() else { panic!("too many") };
    for id in [of_the_future, after] {
        assert!(messages.iter().any(|message| message.subject.ends_with(id.as_str())), "{id} waits: {messages:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_command_of_same_version_is_a_dead_letter() {
    let mut world = World::new().await;
    let _orchestrator = world.orchestrator().await;
    world.start().await;
    let meta = CommandMeta::new(world.server.now());
    let unreadable = world.send_as(Verb::Pause, meta, serde_json::json!({"until": "tomorrow"})).await;
    world.wait_for_message(Stream::Dead, &subject::dead(&key(), DeadKind::Control, &unreadable)).await;
}
