//! Lost calls of a reconcilable tool: the tool is probed, and the call is never sent again.

use contract::ErrorCode;
use contract::tool::{EffectClass, Outcome};

use crate::executor::summarize;
use crate::executor::world::{Tool, World};

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
    let _probes = world.probe(&[(&[("Ailoop-Outcome", "none")], b"")]);
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
    let probes = world.probe(&[(&[("Ailoop-Outcome", "none")], b""), (&[], b"paid")]);
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
