//! A replica whose clock is wrong.

use std::time::Duration;

use contract::command::{ControlReason, Verb};
use contract::event::Event;

use crate::world::{World, drain};

#[tokio::test(start_paused = true)]
async fn clock_hours_ahead_replica_decides_nothing_and_another_decides() {
    let mut world = World::new().await;
    let wrong = world.orchestrator_ahead(Duration::from_hours(13)).await;
    let id = world.send(Verb::Start, contract::command::Start { interactive: true, ..Default::default() }).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.log().await.len(), 0, "the replica decided");

    // The replica returned the command to the queue.
    drain(wrong).await;
    let _right = world.orchestrator().await;
    let event = world.wait_until_handled(&id).await;
    assert!(matches!(event, Event::InputHandled(_)), "{event:?}");
}

#[tokio::test(start_paused = true)]
async fn log_with_future_commit_later_commands_are_not_stale() {
    let mut world = World::new().await;
    let orchestrator = world.orchestrator().await;
    world.start().await;
    let (slot, last) = world.log().await.pop().unwrap();
    // Like a commit of a replica of an older version, whose clock was wrong.
    let mut meta = last.meta.clone();
    let at = meta.time.after(Duration::from_hours(13));
    (meta.prev, meta.commit, meta.time, meta.seq) = (last.meta.commit, "future".to_owned(), at, meta.seq + 1);
    let body = serde_json::json!({ "meta": meta, "events": [] });
    world.bus.commit(&crate::world::key(), slot + 1, "future", body.to_string().into()).await.unwrap();
    drain(orchestrator).await;
    let _orchestrator = world.orchestrator().await;

    let id = world.send(Verb::Pause, ControlReason::default()).await;
    let event = world.wait_until_handled(&id).await;
    assert!(matches!(event, Event::InputHandled(_)), "{event:?}");
}
