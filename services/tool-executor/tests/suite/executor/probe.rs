//! Lost calls of a reconcilable tool: the tool is probed, and the call is never sent again.

use std::time::Duration;

use contract::tool::{EffectClass, Outcome, header};
use contract::{ErrorCode, Timestamp};
use tokio::time::sleep;

use crate::executor::summarize;
use crate::executor::world::{ProbeAnswer, Tool, World, call};

const NONE: ProbeAnswer = (&[("Ailoop-Outcome", "none")], b"");
/// Time after the latest deadline that the tool got, from which on "no effect" is believed.
const NO_EFFECT_AFTER: Duration = Duration::from_secs(2);

/// Starts a call, and kills its executor.
async fn lost(world: &World) -> Tool {
    let mut tool = world.tool().await;
    let (_first, life) = world.executor("a");
    world.publish(&world.item(EffectClass::Reconcilable)).await;
    tool.next_call().await;
    life.kill();
    tool
}

#[tokio::test(start_paused = true)]
async fn lost_call_that_took_effect_has_the_result_that_the_tool_finds() {
    let world = World::new().await;
    let mut tool = lost(&world).await;
    let probes = world.probe(&[(&[], b"paid")]);
    let _second = world.executor("b");
    assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "paid"));
    assert_eq!(probes.count(), 1);
    assert!(tool.has_no_call().await, "it is not called again");
}

#[tokio::test(start_paused = true)]
async fn lost_call_that_took_no_effect_is_an_error_and_not_called_again() {
    let world = World::new().await;
    let mut tool = lost(&world).await;
    let _probes = world.probe(&[NONE]);
    let _second = world.executor("b");
    let result = world.result().await;
    assert_eq!((result.outcome, result.code.clone()), (Outcome::Error, Some(ErrorCode::Unavailable)));
    assert!(result.content.contains("it took no effect"), "{}", result.content);
    assert!(tool.has_no_call().await, "it is not called again");
}

#[tokio::test(start_paused = true)]
async fn lost_call_without_effect_yet_is_probed_again() {
    let world = World::new().await;
    let mut tool = lost(&world).await;
    // A handler was cancelled during its payment, which the tool's store shows a moment later.
    let probes = world.probe(&[NONE, (&[], b"paid")]);
    let _second = world.executor("b");
    assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "paid"));
    assert_eq!(probes.count(), 2);
    assert!(tool.has_no_call().await, "it is not called again");
}

#[tokio::test(start_paused = true)]
async fn lost_call_with_unknown_outcome_is_probed_again() {
    let world = World::new().await;
    let _tool = lost(&world).await;
    let _probes =
        world.probe(&[(&[("Ailoop-Outcome", "unknown")], b""), (&[("Ailoop-Error", "away")], b""), (&[], b"paid")]);
    let _second = world.executor("b");
    assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "paid"));
}

#[tokio::test(start_paused = true)]
async fn lost_call_that_the_tool_does_not_know_is_unknown() {
    let world = World::new().await;
    let _tool = lost(&world).await;
    let _probes = world.probe(&[(&[("Ailoop-Error", "the bank is away")], b"")]);
    let _second = world.executor("b");
    let result = world.result().await;
    assert_eq!(result.outcome, Outcome::Unknown);
    assert!(
        result.content.contains("nobody knows") && result.content.ends_with("the bank is away"),
        "{}",
        result.content
    );
}

#[tokio::test(start_paused = true)]
async fn lost_call_whose_tool_answers_no_probe_is_unknown() {
    let world = World::new().await;
    let mut tool = lost(&world).await;
    let _second = world.executor("b");
    let result = world.result().await;
    assert_eq!(result.outcome, Outcome::Unknown);
    assert!(tool.has_no_call().await);
}

#[tokio::test(start_paused = true)]
async fn lost_call_that_still_runs_is_probed_after_its_end() {
    let world = World::new().await;
    let _tool = lost(&world).await;
    let probes = world.probe(&[(&[], b"paid")]);
    let running = world.replica("1");
    let _second = world.executor("b");
    world.wait_for(async || (running.count() > 2).then_some(())).await;
    assert_eq!(probes.count(), 0, "it still runs");
    drop(running);
    assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "paid"));
}

/// A call of this deadline that an earlier worker may have held.
async fn publish_held(world: &World, deadline: Timestamp) {
    let mut item = world.item(EffectClass::Reconcilable);
    item.meta.deadline = deadline;
    world.publish(&item).await;
    sleep(Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn claim_of_another_owner_no_effect_is_believed_after_its_deadline() {
    // A claim of an older version names no deadline: its owner may have granted the whole timeout until now.
    for (claimed_ms, believed_after) in [(Some(30_000), 30), (None, 60)] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let begun = world.server.now();
        let deadline = |ms| begun.after(Duration::from_millis(ms)).as_millis();
        let value = claimed_ms.map_or("another".to_owned(), |ms| format!("another {}", deadline(ms)));
        assert_eq!(world.bus.claim(&world.key, &call().call, &["0"], &value).await.unwrap(), bus::Claim::Mine);
        // The deadline of the item has passed in a pause.
        publish_held(&world, begun).await;
        let _probes = world.probe(&[NONE]);
        let _executor = world.executor("a");
        let result = world.result().await;
        assert_eq!(result.outcome, Outcome::Error, "{value}");
        assert!(result.content.contains("it took no effect"), "{}", result.content);
        assert!(world.server.now() >= begun.after(Duration::from_secs(believed_after) + NO_EFFECT_AFTER), "{value}");
        assert!(tool.has_no_call().await, "it is not called again");
    }
}

#[tokio::test(start_paused = true)]
async fn claim_of_another_owner_outlasts_the_loop_no_effect_is_not_believed() {
    for claimed_ms in [Some(100_000), None] {
        let world = World::new().await;
        let begun = world.server.now();
        let deadline = |ms| begun.after(Duration::from_millis(ms)).as_millis();
        let value = claimed_ms.map_or("another".to_owned(), |ms| format!("another {}", deadline(ms)));
        assert_eq!(world.bus.claim(&world.key, &call().call, &["0"], &value).await.unwrap(), bus::Claim::Mine);
        publish_held(&world, begun.after(Duration::from_mins(1))).await;
        let _probes = world.probe(&[NONE]);
        let _executor = world.executor("a");
        let result = world.result().await;
        assert_eq!(result.outcome, Outcome::Unknown, "{value}");
        assert!(result.content.ends_with("may still accept the call"), "{}", result.content);
    }
}

#[tokio::test(start_paused = true)]
async fn call_sent_with_a_later_deadline_than_its_item_no_effect_is_believed_after_it() {
    // The deadline of the item has passed in a pause, or passes soon since the call waited for a place.
    for (left, outcome) in [(0, Outcome::Error), (20, Outcome::Unknown)] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        publish_held(&world, world.server.now().after(Duration::from_secs(left))).await;
        let _probes = world.probe(&[NONE]);
        let _executor = world.executor("a");
        let request = tool.next_call().await;
        let deadline = Timestamp::parse(request.header(header::DEADLINE).unwrap()).unwrap();
        // The request is lost on its way, or waits in the socket of a replica that is frozen.
        let _replica = world.replica("0");
        world.wait_for(async || (!world.results().await.is_empty()).then_some(())).await;
        let result = &world.results().await[0];
        assert_eq!(result.outcome, outcome, "{}", result.content);
        assert!(outcome == Outcome::Unknown || world.server.now() >= deadline.after(NO_EFFECT_AFTER));
        assert!(tool.has_no_call().await, "it is not called again");
    }
}

#[tokio::test(start_paused = true)]
async fn call_whose_outcome_is_known_is_not_probed() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let probes = world.probe(&[(&[], b"paid twice")]);
    let (_executor, _life) = world.executor("a");
    world.publish(&world.item(EffectClass::Reconcilable)).await;
    let request = tool.next_call().await;
    tool.answer(&request, &[], b"paid").await;
    assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "paid"));
    assert_eq!(probes.count(), 0);
}
