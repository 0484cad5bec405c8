//! Calls whose executor dies or whose server restarts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bus::work::Publication;
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use contract::ErrorCode;
use contract::commit::Phase;
use contract::repair::RepairReply;
use contract::streams::{Bucket, Stream};
use contract::tool::{EffectClass, Outcome, header};
use futures::FutureExt as _;
use tokio::time::{Instant, sleep};

use crate::executor::catalogue::{describe_tool, wait_for};
use crate::executor::summarize;
use crate::executor::world::{World, call};

#[tokio::test(start_paused = true)]
async fn at_most_once_call_lost_is_unknown_and_never_repeated() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let (_first, life) = world.executor("a");
    world.publish(&world.item(EffectClass::AtMostOnce)).await;
    tool.next_call().await;
    life.kill();
    let _second = world.executor("b");
    let result = world.result().await;
    assert_eq!(result.outcome, Outcome::Unknown);
    assert!(result.content.contains("nobody knows"), "{}", result.content);
    world.wait_until_settled().await;
    assert!(tool.has_no_call().await);
}

#[tokio::test(start_paused = true)]
async fn call_closed_while_its_executor_died_an_orchestrator_looks_after_its_session() {
    let mut world = World::new().await;
    let mut tool = world.tool().await;
    let (_first, life) = world.executor("a");
    world.publish(&world.item(EffectClass::Pure)).await;
    tool.next_call().await;
    life.kill();
    // The orchestrator committed the result, and died before it published what follows.
    world.commit(Phase::Running, &[]).await;
    let _second = world.executor("b");
    // Until an orchestrator answers, the item stays.
    sleep(Duration::from_secs(20)).await;
    assert!(!world.is_settled().await);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let noted = asked.clone();
    let serving = world.bus.serve_repair(move |key| {
        let mut asked = noted.lock().unwrap();
        asked.push(key);
        // The bus is away from the first orchestrator.
        let refused = RepairReply::Refused { code: ErrorCode::Unavailable, message: "try again".to_owned() };
        let reply = if asked.len() == 1 { refused } else { RepairReply::Repaired(Vec::new()) };
        async { reply }.boxed()
    });
    let _orchestrator = serving.await.unwrap();
    world.wait_until_settled().await;
    assert_eq!(*asked.lock().unwrap(), [world.key.clone(), world.key.clone()]);
    assert!(tool.has_no_call().await);
}

#[tokio::test(start_paused = true)]
async fn claim_expires_in_a_pause_call_that_was_sent_is_unknown_and_never_repeated() {
    for effect in [EffectClass::AtMostOnce, EffectClass::Reconcilable] {
        for says_when_opened in [true, false] {
            let mut world = World::new().await;
            let mut tool = world.tool().await;
            let (first, life) = world.executor("a");
            let mut item = world.item(effect);
            item.opened_at = says_when_opened.then(|| world.server.now());
            world.publish(&item).await;
            tool.next_call().await;
            world.commit(Phase::Paused, &[&call().to_string()]).await;
            life.kill();
            drop(first);
            let days = Duration::from_hours(8 * 24);
            tokio::time::advance(days).await;
            let bus = world.bus.transport();
            for (claim, _) in bus.kv_list(Bucket::Claims, ">").await.unwrap() {
                bus.kv_delete(Bucket::Claims, &claim).await.unwrap();
            }
            world.commit(Phase::Running, &[&call().to_string()]).await;
            if says_when_opened {
                // A repair has published the call again, with the deadline that it has since the pause.
                item.meta.deadline = world.server.now().after(Duration::from_mins(1));
                world.bus.publish_tool_item(&world.key, &item, Publication::Replacing).await.unwrap();
            }
            let _second = world.executor("b");
            let result = world.result().await;
            assert_eq!(result.outcome, Outcome::Unknown, "{effect:?}: {}", result.content);
            assert!(result.content.contains("has expired"), "{}", result.content);
            assert!(tool.has_no_call().await, "{effect:?}");
        }
    }
}

/// Claims take a second.
struct SlowClaims;

impl Faults for SlowClaims {
    fn decide(&self, op: Operation<'_>) -> Fault {
        if op.action == Action::KvCreate { Fault::Delay(Duration::from_secs(1)) } else { Fault::None }
    }
}

#[tokio::test(start_paused = true)]
async fn log_loses_the_call_before_its_dispatch_the_item_is_dropped() {
    let server = MemoryServer::with_faults(Arc::new(SlowClaims));
    let empty = server.backup(&[Stream::Log]);
    let world = World::on(server).await;
    let mut tool = world.tool().await;
    let (_executor, _life) = world.executor("a");
    world.publish(&world.item(EffectClass::AtMostOnce)).await;
    // The executor has found the call open, and waits for its claim.
    sleep(Duration::from_millis(500)).await;
    world.server.restore(&empty);
    world.wait_until_settled().await;
    assert!(tool.has_no_call().await);
}

#[tokio::test(start_paused = true)]
async fn session_paused_between_claim_and_dispatch_call_is_not_sent_after_its_claimed_deadline() {
    let mut world = World::on(MemoryServer::with_faults(Arc::new(SlowClaims))).await;
    let mut tool = world.tool().await;
    let (_executor, _life) = world.executor("a");
    world.publish(&world.item(EffectClass::AtMostOnce)).await;
    sleep(Duration::from_millis(500)).await;
    world.commit(Phase::Paused, &[&call().to_string()]).await;
    sleep(Duration::from_mins(2)).await;
    world.commit(Phase::Running, &[&call().to_string()]).await;
    let result = world.result().await;
    assert_eq!(result.outcome, Outcome::Timeout, "{}", result.content);
    assert!(result.content.contains("was not called"), "{}", result.content);
    assert!(tool.has_no_call().await);
}

#[tokio::test(start_paused = true)]
async fn item_delivered_again_while_its_call_runs_its_executor_takes_it_over() {
    for way in ["the server restarts", "it is published again at once", "the queues are reset"] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let _replica = world.replica("1");
        let (_first, _) = world.executor("a");
        let item = world.item(EffectClass::AtMostOnce);
        world.publish(&item).await;
        let request = tool.next_call().await;
        let (_second, _) = world.executor("b");
        match way {
            "the server restarts" => world.server.restart(),
            "the queues are reset" => drop(world.bus.reset_queues(None, "a").await.unwrap()),
            _ => world.bus.publish_tool_item(&world.key, &item, Publication::Replacing).await.unwrap(),
        }
        sleep(Duration::from_secs(20)).await;
        assert!(!world.has_result().await, "{way}");
        tool.answer(&request, &[], b"done").await;
        assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "done"), "{way}");
        world.wait_until_settled().await;
        assert!(tool.has_no_call().await, "{way}");
    }
}

#[tokio::test(start_paused = true)]
async fn call_published_again_while_its_result_waits_is_not_repeated() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let (_executor, _life) = world.executor("a");
    let item = world.item(EffectClass::AtMostOnce);
    world.publish(&item).await;
    let request = tool.next_call().await;
    tool.answer(&request, &[], b"done").await;
    world.wait_until_settled().await;
    // An orchestrator that has not read the result yet publishes the call again.
    world.publish(&item).await;
    world.wait_until_settled().await;
    assert!(tool.has_no_call().await);
    assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "done"));
}

#[tokio::test(start_paused = true)]
async fn repeatable_call_lost_is_sent_again_under_the_same_id() {
    for effect in [EffectClass::Pure, EffectClass::Idempotent] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let (_first, life) = world.executor("a");
        world.publish(&world.item(effect)).await;
        let lost = tool.next_call().await;
        life.kill();
        let _second = world.executor("b");
        let again = tool.next_call().await;
        assert_eq!(again.header(header::CALL), lost.header(header::CALL));
        assert_eq!(again.header(header::ATTEMPT), Some("1.2"));
        tool.answer(&again, &[], b"done").await;
        assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "done"));
    }
}

#[tokio::test(start_paused = true)]
async fn call_of_a_lost_executor_is_unknown_if_it_cannot_be_sent_again() {
    for (effect, outcome) in [
        (EffectClass::Pure, Outcome::Error),
        (EffectClass::Idempotent, Outcome::Unknown),
        (EffectClass::AtMostOnce, Outcome::Unknown),
    ] {
        // The tool has no replica left.
        let world = World::new().await;
        let mut tool = world.tool().await;
        let (_first, life) = world.executor("a");
        world.publish(&world.item(effect)).await;
        tool.next_call().await;
        life.kill();
        drop(tool);
        let _second = world.executor("b");
        let result = world.result().await;
        assert_eq!(result.outcome, outcome, "{}", result.content);
        assert!(!result.content.contains("not called"), "{}", result.content);

        // The tool was replaced by one with other arguments.
        let world = World::new().await;
        let mut tool = world.tool().await;
        let (_first, life) = world.executor("a");
        world.publish(&world.item(effect)).await;
        tool.next_call().await;
        let (_second, _life) = world.executor("b");
        let (describing, description) = describe_tool(&world.server, r#"{"properties":{"n":{"type":"string"}}}"#).await;
        futures::join!(description, async {
            wait_for(&world, &["act"]).await;
            life.kill();
            let result = world.result().await;
            assert_eq!(result.outcome, outcome, "{}", result.content);
            describing.abort();
        });
        assert!(tool.has_no_call().await);
    }
}

#[tokio::test(start_paused = true)]
async fn call_returned_before_dispatch_reports_not_sent() {
    for (effect, gone) in [(EffectClass::Idempotent, true), (EffectClass::AtMostOnce, false)] {
        let mut world = World::new().await;
        let (describing, description) = describe_tool(&world.server, r#"{"properties":{"n":{"type":"string"}}}"#).await;
        let (_executor, _life) = world.executor("a");
        futures::join!(description, async {
            wait_for(&world, &["act"]).await;
            if gone {
                describing.abort();
                wait_for(&world, &[]).await;
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
            describing.abort();
        });
    }
}

#[tokio::test(start_paused = true)]
async fn call_held_during_server_restart_does_not_run_twice() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let (_a, _life_a) = world.executor("a");
    let (_b, _life_b) = world.executor("b");
    let mut item = world.item(EffectClass::AtMostOnce);
    item.meta.deadline = world.server.now().after(std::time::Duration::from_hours(1));
    world.publish(&item).await;
    let request = tool.next_call().await;
    // The replica reports that it runs the call: otherwise its answer could be lost.
    let _replica = world.replica("1");
    world.server.restart();
    assert!(tool.has_no_call().await);
    assert!(!world.has_result().await);
    tool.answer(&request, &[], b"late").await;
    assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "late"));
    world.wait_until_settled().await;
}

#[tokio::test(start_paused = true)]
async fn drain_hands_back_calls_that_do_not_end() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let (first, _life) = world.executor("a");
    world.publish(&world.item(EffectClass::Idempotent)).await;
    tool.next_call().await;
    first.drain(std::time::Duration::from_secs(1)).await;
    let _second = world.executor("b");
    let again = tool.next_call().await;
    tool.answer(&again, &[], b"done").await;
    assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "done"));
}

/// Longest time that one fault may cost a session.
const FAULT_MAX: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn connection_breaks_while_at_most_once_call_runs_outcome_is_unknown_soon() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let (_executor, _life) = world.executor("a");
    world.publish(&world.item(EffectClass::AtMostOnce)).await;
    tool.next_call().await;
    let broke = Instant::now();
    world.server.restart();
    let result = world.result().await;
    assert!(broke.elapsed() < FAULT_MAX, "{:?}", broke.elapsed());
    assert_eq!(result.outcome, Outcome::Unknown);
    assert!(result.content.contains("the connection to NATS broke while the call ran"), "{}", result.content);
    world.wait_until_settled().await;
    assert!(tool.has_no_call().await);
}

#[tokio::test(start_paused = true)]
async fn connection_breaks_while_repeatable_call_runs_it_is_sent_again_at_once() {
    for effect in [EffectClass::Pure, EffectClass::Idempotent] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let (_executor, _life) = world.executor("a");
        world.publish(&world.item(effect)).await;
        let lost = tool.next_call().await;
        let broke = Instant::now();
        world.server.restart();
        let again = tool.next_call().await;
        assert!(broke.elapsed() < Duration::from_secs(1), "{:?}", broke.elapsed());
        assert_eq!(again.header(header::CALL), lost.header(header::CALL));
        tool.answer(&again, &[], b"done").await;
        assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "done"));
    }
}

#[tokio::test(start_paused = true)]
async fn answer_comes_after_connection_broke_at_most_once_call_is_ok() {
    // At once, after progress, and where a replica reports that it runs the call.
    for (progress, running, after) in [(false, None, 3), (true, None, 40), (false, Some("1"), 40)] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let (_executor, _life) = world.executor("a");
        world.publish(&world.item(EffectClass::AtMostOnce)).await;
        let request = tool.next_call().await;
        let replica = running.map(|running| world.replica(running));
        world.server.restart();
        sleep(Duration::from_secs(2)).await;
        if progress {
            tool.answer(&request, &[(header::PROGRESS, "1")], b"half").await;
        }
        sleep(Duration::from_secs(after)).await;
        tool.answer(&request, &[], b"done").await;
        world.wait_for(async || (!world.results().await.is_empty()).then_some(())).await;
        assert_eq!(summarize(&world.results().await[0]), (Outcome::Ok, None, "done"), "{progress} {running:?}");
        drop(replica);
    }
}

#[tokio::test(start_paused = true)]
async fn call_that_no_replica_holds_is_noticed_soon() {
    for effect in [EffectClass::Pure, EffectClass::Idempotent, EffectClass::AtMostOnce, EffectClass::Reconcilable] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let _replica = world.replica("0");
        let (_executor, _life) = world.executor("a");
        world.publish(&world.item(effect)).await;
        let lost = tool.next_call().await;
        let sent = Instant::now();
        match effect {
            EffectClass::Pure | EffectClass::Idempotent => {
                let again = tool.next_call().await;
                assert!(sent.elapsed() < FAULT_MAX, "{:?}", sent.elapsed());
                assert_eq!(again.header(header::CALL), lost.header(header::CALL));
                tool.answer(&again, &[], b"done").await;
                assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "done"));
            }
            EffectClass::AtMostOnce | EffectClass::Reconcilable => {
                let result = world.result().await;
                // A reconcilable tool is probed until after the deadline.
                let is_soon = sent.elapsed() < FAULT_MAX;
                assert_eq!(is_soon, effect == EffectClass::AtMostOnce, "{:?}", sent.elapsed());
                assert_eq!(result.outcome, Outcome::Unknown);
                assert!(result.content.contains("no replica of the tool has the call"), "{}", result.content);
                assert!(tool.has_no_call().await);
            }
        }
    }
}

/// The tool lost its connection while it sent the reply, which the executor does not see. A second reply that is lost is
/// one that cannot be delivered.
#[tokio::test(start_paused = true)]
async fn reply_lost_after_progress_is_noticed_soon() {
    const PROGRESS: &[(&str, &str)] = &[(header::PROGRESS, "1"), (header::INSTANCE, "act.x1")];
    for (effect, outcome) in [
        (EffectClass::Pure, Outcome::Error),
        (EffectClass::Idempotent, Outcome::Unknown),
        (EffectClass::AtMostOnce, Outcome::Unknown),
    ] {
        for is_answered in [true, false] {
            let world = World::new().await;
            let mut tool = world.tool().await;
            let works = world.named_replica("act.x1", "1");
            let (_executor, _life) = world.executor("a");
            world.publish(&world.item(effect)).await;
            let request = tool.next_call().await;
            tool.answer(&request, PROGRESS, b"begun").await;
            sleep(Duration::from_secs(20)).await;
            drop(works);
            let _ended = world.named_replica("act.x1", "0");
            let lost = Instant::now();
            if effect.may_repeat() {
                let again = tool.next_call().await;
                assert!(lost.elapsed() < FAULT_MAX, "{:?}", lost.elapsed());
                assert_eq!(again.header(header::CALL), request.header(header::CALL));
                if is_answered {
                    tool.answer(&again, &[], b"done").await;
                    assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "done"));
                    continue;
                }
                tool.answer(&again, PROGRESS, b"begun").await;
            }
            let result = world.result().await;
            assert!(lost.elapsed() < FAULT_MAX * 2, "{:?}", lost.elapsed());
            assert_eq!(result.outcome, outcome);
            assert!(result.content.contains("its answer was"), "{}", result.content);
            assert!(tool.has_no_call().await);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn replica_without_running_header_a_silent_call_is_waited_for() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let _replica = world.replica("");
    let (_executor, _life) = world.executor("a");
    world.publish(&world.item(EffectClass::AtMostOnce)).await;
    let request = tool.next_call().await;
    sleep(Duration::from_secs(40)).await;
    tool.answer(&request, &[], b"done").await;
    assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "done"));
}

/// The stream of inputs stores nothing for a while, as without a leader.
struct NoLeader {
    for_ms: u64,
    since: std::sync::Mutex<Option<tokio::time::Instant>>,
}

impl Faults for NoLeader {
    fn decide(&self, op: Operation<'_>) -> Fault {
        if op.action != Action::Append || !op.subject.starts_with("ai_loop.control.") {
            return Fault::None;
        }
        let now = tokio::time::Instant::now();
        let since = *self.since.lock().unwrap().get_or_insert(now);
        if now.duration_since(since).as_millis() < u128::from(self.for_ms) { Fault::NotDone } else { Fault::None }
    }
}

#[tokio::test(start_paused = true)]
async fn result_while_inputs_cannot_be_stored_is_stored_later() {
    for for_ms in [1_500, 30_000, 200_000] {
        let faults = Arc::new(NoLeader { for_ms, since: std::sync::Mutex::default() });
        let world = World::on(MemoryServer::with_faults(faults)).await;
        let mut tool = world.tool().await;
        let (_a, _life_a) = world.executor("a");
        let (_b, _life_b) = world.executor("b");
        let item = world.item(EffectClass::AtMostOnce);
        world.publish(&item).await;
        let request = tool.next_call().await;
        tool.answer(&request, &[], b"done").await;
        assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "done"), "{for_ms} ms");
        world.wait_until_settled().await;
        assert_eq!(world.results().await.len(), 1);
        assert!(tool.has_no_call().await);
    }
}
