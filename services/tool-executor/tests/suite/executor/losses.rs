//! What happens to a call when an executor dies, and when a server restarts.

use std::sync::Arc;
use std::time::Duration;

use bus::MemoryServer;
use bus::memory::{Action, Fault, Faults, Op};
use contract::ErrorCode;
use contract::commit::Phase;
use contract::tool::{EffectClass, Outcome, header};
use tokio::time::{Instant, sleep};

use crate::executor::catalogue::{play, until};
use crate::executor::what;
use crate::executor::world::{World, call};

#[tokio::test(start_paused = true)]
async fn a_lost_at_most_once_call_is_unknown_and_never_repeated() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let (_first, life) = world.executor("a").await;
    world.publish(&world.item(EffectClass::AtMostOnce)).await;
    tool.asked().await;
    life.kill();
    let _second = world.executor("b").await;
    let result = world.result().await;
    assert_eq!(result.outcome, Outcome::Unknown);
    assert!(result.content.contains("nobody knows"), "{}", result.content);
    world.settled().await;
    assert!(tool.is_left_alone().await);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_published_again_while_its_result_waits_is_not_repeated() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let (_executor, _life) = world.executor("a").await;
    let item = world.item(EffectClass::AtMostOnce);
    world.publish(&item).await;
    let request = tool.asked().await;
    tool.answer(&request, &[], b"done").await;
    world.settled().await;
    // An orchestrator that does not know of the result yet performs what it thinks is owed.
    world.publish(&item).await;
    world.settled().await;
    assert!(tool.is_left_alone().await);
    assert_eq!(what(&world.result().await), (Outcome::Ok, None, "done"));
}

#[tokio::test(start_paused = true)]
async fn a_lost_repeatable_call_is_made_again_under_the_same_id() {
    for effect in [EffectClass::Pure, EffectClass::Idempotent] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let (_first, life) = world.executor("a").await;
        world.publish(&world.item(effect)).await;
        let lost = tool.asked().await;
        life.kill();
        let _second = world.executor("b").await;
        let again = tool.asked().await;
        assert_eq!(again.header(header::CALL), lost.header(header::CALL));
        assert_eq!(again.header(header::ATTEMPT), Some("1.2"));
        tool.answer(&again, &[], b"done").await;
        assert_eq!(what(&world.result().await), (Outcome::Ok, None, "done"));
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_executor_sent_is_unknown_where_the_call_cannot_be_made_again() {
    for (effect, outcome) in [
        (EffectClass::Pure, Outcome::Error),
        (EffectClass::Idempotent, Outcome::Unknown),
        (EffectClass::AtMostOnce, Outcome::Unknown),
    ] {
        // The tool is gone, too.
        let world = World::new().await;
        let mut tool = world.tool().await;
        let (_first, life) = world.executor("a").await;
        world.publish(&world.item(effect)).await;
        tool.asked().await;
        life.kill();
        drop(tool);
        let _second = world.executor("b").await;
        let result = world.result().await;
        assert_eq!(result.outcome, outcome, "{}", result.content);
        assert!(!result.content.contains("not called"), "{}", result.content);

        // Or it was replaced by one that wants other arguments.
        let world = World::new().await;
        let mut tool = world.tool().await;
        let (_first, life) = world.executor("a").await;
        world.publish(&world.item(effect)).await;
        tool.asked().await;
        let (_second, _life) = world.executor("b").await;
        let (playing, described) = play(&world.server, r#"{"properties":{"n":{"type":"string"}}}"#).await;
        futures::join!(described, async {
            until(&world, &["act"]).await;
            life.kill();
            let result = world.result().await;
            assert_eq!(result.outcome, outcome, "{}", result.content);
            playing.abort();
        });
        assert!(tool.is_left_alone().await);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_handed_back_before_it_was_sent_is_told_as_it_is() {
    for (effect, gone) in [(EffectClass::Idempotent, true), (EffectClass::AtMostOnce, false)] {
        let mut world = World::new().await;
        let (playing, described) = play(&world.server, r#"{"properties":{"n":{"type":"string"}}}"#).await;
        let (_executor, _life) = world.executor("a").await;
        futures::join!(described, async {
            until(&world, &["act"]).await;
            if gone {
                playing.abort();
                until(&world, &[]).await;
            }
            world.commit(Phase::Paused, &[&call().to_string()]).await;
            let mut item = world.item(effect);
            item.meta.deadline = world.server.now().after(std::time::Duration::from_hours(1));
            world.publish(&item).await;
            tokio::time::sleep(std::time::Duration::from_secs(10)).await;
            world.commit(Phase::Running, &[&call().to_string()]).await;
            let result = world.result().await;
            let code = if gone { ErrorCode::NoToolAvailable } else { ErrorCode::InvalidArguments };
            assert_eq!((result.outcome, result.code), (Outcome::Error, Some(code)), "{}", result.content);
            playing.abort();
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_call_does_not_run_twice_when_the_server_restarts() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let (_a, _life_a) = world.executor("a").await;
    let (_b, _life_b) = world.executor("b").await;
    let mut item = world.item(EffectClass::AtMostOnce);
    item.meta.deadline = world.server.now().after(std::time::Duration::from_hours(1));
    world.publish(&item).await;
    let request = tool.asked().await;
    // It is still at it, and says so: otherwise nobody would know whether its answer was lost.
    let _replica = world.replica("1");
    world.server.restart();
    assert!(tool.is_left_alone().await);
    assert!(!world.has_result().await);
    tool.answer(&request, &[], b"late").await;
    assert_eq!(what(&world.result().await), (Outcome::Ok, None, "late"));
    world.settled().await;
}

#[tokio::test(start_paused = true)]
async fn draining_hands_back_what_does_not_end() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let (first, _life) = world.executor("a").await;
    world.publish(&world.item(EffectClass::Idempotent)).await;
    tool.asked().await;
    first.drain(std::time::Duration::from_secs(1)).await;
    let _second = world.executor("b").await;
    let again = tool.asked().await;
    tool.answer(&again, &[], b"done").await;
    assert_eq!(what(&world.result().await), (Outcome::Ok, None, "done"));
}

/// The longest that one fault may cost a session.
const FAULT_MAX: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn connection_breaks_while_at_most_once_call_runs_outcome_is_unknown_soon() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let (_executor, _life) = world.executor("a").await;
    world.publish(&world.item(EffectClass::AtMostOnce)).await;
    tool.asked().await;
    let broke = Instant::now();
    world.server.restart();
    let result = world.result().await;
    assert!(broke.elapsed() < FAULT_MAX, "{:?}", broke.elapsed());
    assert_eq!(result.outcome, Outcome::Unknown);
    assert!(result.content.contains("the connection to NATS broke while the call ran"), "{}", result.content);
    world.settled().await;
    assert!(tool.is_left_alone().await);
}

#[tokio::test(start_paused = true)]
async fn connection_breaks_while_repeatable_call_runs_it_is_sent_again_at_once() {
    for effect in [EffectClass::Pure, EffectClass::Idempotent] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let (_executor, _life) = world.executor("a").await;
        world.publish(&world.item(effect)).await;
        let lost = tool.asked().await;
        let broke = Instant::now();
        world.server.restart();
        let again = tool.asked().await;
        assert!(broke.elapsed() < Duration::from_secs(1), "{:?}", broke.elapsed());
        assert_eq!(again.header(header::CALL), lost.header(header::CALL));
        tool.answer(&again, &[], b"done").await;
        assert_eq!(what(&world.result().await), (Outcome::Ok, None, "done"));
    }
}

#[tokio::test(start_paused = true)]
async fn answer_comes_after_connection_broke_at_most_once_call_is_ok() {
    // At once, after a sign of progress, and where a replica says that it runs the call.
    for (progress, running, after) in [(false, None, 3), (true, None, 40), (false, Some("1"), 40)] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let (_executor, _life) = world.executor("a").await;
        world.publish(&world.item(EffectClass::AtMostOnce)).await;
        let request = tool.asked().await;
        let replica = running.map(|running| world.replica(running));
        world.server.restart();
        sleep(Duration::from_secs(2)).await;
        if progress {
            tool.answer(&request, &[(header::PROGRESS, "1")], b"half").await;
        }
        sleep(Duration::from_secs(after)).await;
        tool.answer(&request, &[], b"done").await;
        world.until(async || (!world.results().await.is_empty()).then_some(())).await;
        assert_eq!(what(&world.results().await[0]), (Outcome::Ok, None, "done"), "{progress} {running:?}");
        drop(replica);
    }
}

#[tokio::test(start_paused = true)]
async fn no_replica_has_read_the_call_it_is_known_soon() {
    for effect in [EffectClass::Pure, EffectClass::Idempotent, EffectClass::AtMostOnce, EffectClass::Reconcilable] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let _replica = world.replica("0");
        let (_executor, _life) = world.executor("a").await;
        world.publish(&world.item(effect)).await;
        let lost = tool.asked().await;
        let sent = Instant::now();
        match effect {
            EffectClass::Pure | EffectClass::Idempotent => {
                let again = tool.asked().await;
                assert!(sent.elapsed() < FAULT_MAX, "{:?}", sent.elapsed());
                assert_eq!(again.header(header::CALL), lost.header(header::CALL));
                tool.answer(&again, &[], b"done").await;
                assert_eq!(what(&world.result().await), (Outcome::Ok, None, "done"));
            }
            EffectClass::AtMostOnce | EffectClass::Reconcilable => {
                let result = world.result().await;
                // A tool that may still tell is asked until after the deadline.
                let is_soon = sent.elapsed() < FAULT_MAX;
                assert_eq!(is_soon, effect == EffectClass::AtMostOnce, "{:?}", sent.elapsed());
                assert_eq!(result.outcome, Outcome::Unknown);
                assert!(result.content.contains("no replica of the tool has the call"), "{}", result.content);
                assert!(tool.is_left_alone().await);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn replica_does_not_say_what_it_runs_a_silent_call_is_waited_for() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let _replica = world.replica("");
    let (_executor, _life) = world.executor("a").await;
    world.publish(&world.item(EffectClass::AtMostOnce)).await;
    let request = tool.asked().await;
    sleep(Duration::from_secs(40)).await;
    tool.answer(&request, &[], b"done").await;
    assert_eq!(what(&world.result().await), (Outcome::Ok, None, "done"));
}

/// The stream of inputs takes nothing for a while, as when it has no leader.
struct NoLeader {
    for_ms: u64,
    since: std::sync::Mutex<Option<tokio::time::Instant>>,
}

impl Faults for NoLeader {
    fn on(&self, op: Op<'_>) -> Fault {
        if op.action != Action::Append || !op.subject.starts_with("ai_loop.control.") {
            return Fault::None;
        }
        let now = tokio::time::Instant::now();
        let since = *self.since.lock().unwrap().get_or_insert(now);
        if now.duration_since(since).as_millis() < u128::from(self.for_ms) { Fault::NotDone } else { Fault::None }
    }
}

#[tokio::test(start_paused = true)]
async fn result_while_no_input_is_stored_is_kept_and_stored_later() {
    for for_ms in [1_500, 30_000, 200_000] {
        let faults = Arc::new(NoLeader { for_ms, since: std::sync::Mutex::default() });
        let world = World::on(MemoryServer::with_faults(faults)).await;
        let mut tool = world.tool().await;
        let (_a, _life_a) = world.executor("a").await;
        let (_b, _life_b) = world.executor("b").await;
        let item = world.item(EffectClass::AtMostOnce);
        world.publish(&item).await;
        let request = tool.asked().await;
        tool.answer(&request, &[], b"done").await;
        assert_eq!(what(&world.result().await), (Outcome::Ok, None, "done"), "{for_ms} ms");
        world.settled().await;
        assert_eq!(world.results().await.len(), 1);
        assert!(tool.is_left_alone().await);
    }
}
