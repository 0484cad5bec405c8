//! Long calls: progress extends them and reaches viewers, and lost replicas are noticed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bus::SubscriptionEvent;
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use contract::Timestamp;
use contract::event::{Envelope, ToolCallProgress, Topic};
use contract::subject;
use contract::tool::{EffectClass, Outcome, header};
use futures::StreamExt;
use tokio::time::{Instant, sleep, timeout};
use tool_executor::Clock;

use crate::executor::summarize;
use crate::executor::world::World;

const PROGRESS: (&str, &str) = (header::PROGRESS, "1");
/// Time in which a loss is noticed.
const SOON: Duration = Duration::from_secs(8);
const INSTANCE: (&str, &str) = (header::INSTANCE, "act.x1");

#[tokio::test(start_paused = true)]
async fn progress_extends_the_deadline_and_requests_extensions_in_time() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let _executor = world.executor("a");
    world.publish(&world.item(EffectClass::AtMostOnce)).await;
    let request = tool.next_call().await;
    let began = world.server.now();
    for minute in 1..=5 {
        for _ in 0..6 {
            sleep(Duration::from_secs(10)).await;
            let known = world.extensions().await.last().copied().unwrap_or(began.after(Duration::from_mins(1)));
            assert!(known >= world.server.now(), "the loop would have given up at {known}");
            tool.answer(&request, &[PROGRESS], format!("minute {minute}").as_bytes()).await;
        }
    }
    tool.answer(&request, &[], b"done").await;
    world.wait_for(async || (!world.results().await.is_empty()).then_some(())).await;
    let extensions = world.extensions().await;
    assert!((4..=12).contains(&extensions.len()), "{} extensions in five minutes", extensions.len());
    assert!(extensions.is_sorted() && *extensions.last().unwrap() <= world.server.now().after(Duration::from_mins(1)));
    assert_eq!(summarize(&world.results().await[0]), (Outcome::Ok, None, "done"));
}

#[tokio::test(start_paused = true)]
async fn extension_request_not_stored_is_repeated_in_time() {
    // The stream has no leader while one request runs.
    struct Away(Instant);
    impl Faults for Away {
        fn decide(&self, op: Operation<'_>) -> Fault {
            let is_extension = op.action == Action::Append && op.subject.contains("extend_tool_call");
            if is_extension && self.0.elapsed() < Duration::from_millis(57_500) { Fault::NotDone } else { Fault::None }
        }
    }
    let world = World::on(MemoryServer::with_faults(Arc::new(Away(Instant::now())))).await;
    let mut tool = world.tool().await;
    let _executor = world.executor("a");
    world.publish(&world.item(EffectClass::AtMostOnce)).await;
    let request = tool.next_call().await;
    let wait_for = world.server.now().after(Duration::from_mins(1));
    for _ in 0..12 {
        sleep(Duration::from_secs(5)).await;
        tool.answer(&request, &[PROGRESS], b"").await;
    }
    assert!(world.server.now() >= wait_for);
    assert_eq!(world.extensions().await.len(), 1, "the loop gives up at {wait_for}");
}

#[tokio::test(start_paused = true)]
async fn call_without_progress_requests_no_extension() {
    // The claim takes time between the read of the deadline and the dispatch.
    struct Slow(bus_memory::MemoryServer, AtomicU64);
    impl Clock for Slow {
        fn now(&self) -> Timestamp {
            self.0.now().after(Duration::from_millis(self.1.fetch_add(7, Ordering::Relaxed)))
        }
    }
    for effect in [EffectClass::Pure, EffectClass::Idempotent, EffectClass::AtMostOnce] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let clock = Arc::new(Slow(world.server.clone(), AtomicU64::new(0)));
        let _executor = world.executor_with_clock("a", clock);
        world.publish(&world.item(effect)).await;
        let request = tool.next_call().await;
        sleep(Duration::from_secs(59)).await;
        tool.answer(&request, &[], b"done").await;
        world.wait_for(async || (!world.results().await.is_empty()).then_some(())).await;
        assert_eq!(world.extensions().await, [], "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn call_without_further_progress_times_out() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let _executor = world.executor("a");
    let began = Instant::now();
    world.publish(&world.item(EffectClass::Pure)).await;
    let request = tool.next_call().await;
    sleep(Duration::from_secs(30)).await;
    tool.answer(&request, &[PROGRESS], b"").await;
    world.wait_for(async || (!world.results().await.is_empty()).then_some(())).await;
    let result = &world.results().await[0];
    let text = "silent for 60 seconds after it showed progress";
    assert_eq!(summarize(result), (Outcome::Timeout, None, text));
    assert!((89..=92).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn progress_reaches_viewers_at_a_limited_rate() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let _executor = world.executor("a");
    let mut topic = world.bus.topic(&world.key.tenant, Topic::ToolCallProgress).await.unwrap();
    world.publish(&world.item(EffectClass::Pure)).await;
    let request = tool.next_call().await;
    for number in 0..50 {
        tool.answer(&request, &[PROGRESS], format!("at {number}").as_bytes()).await;
        sleep(Duration::from_millis(10)).await;
    }
    tool.answer(&request, &[], b"done").await;
    world.result().await;
    let mut published = Vec::new();
    while let Ok(Some(SubscriptionEvent::Message(message))) = timeout(Duration::from_secs(1), topic.next()).await {
        let envelope: Envelope = serde_json::from_slice(&message.payload).unwrap();
        assert_eq!(envelope.seq, None);
        let progress: ToolCallProgress = serde_json::from_str(envelope.data.get()).unwrap();
        published.push((progress.call.to_string(), progress.text));
    }
    assert_eq!(published.first(), Some(&("c1-1-1".to_owned(), "at 0".to_owned())));
    assert!((3..=6).contains(&published.len()), "{published:?}");
}

#[tokio::test(start_paused = true)]
async fn replica_gone_is_noticed_long_before_the_deadline() {
    for effect in [EffectClass::Pure, EffectClass::Idempotent, EffectClass::AtMostOnce, EffectClass::Reconcilable] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let alive = world.bus.listen(&subject::service_ping("act.x1").unwrap(), None).await.unwrap();
        let _executor = world.executor("a");
        world.publish(&world.item(effect)).await;
        let request = tool.next_call().await;
        tool.answer(&request, &[PROGRESS, INSTANCE], b"begun").await;
        // A silent replica that is alive changes nothing.
        sleep(Duration::from_secs(20)).await;
        let gone = Instant::now();
        drop(alive);
        match effect {
            EffectClass::Pure | EffectClass::Idempotent => {
                let again = tool.next_call().await;
                assert!(gone.elapsed() < SOON, "{:?}", gone.elapsed());
                assert_eq!(again.header(header::CALL), request.header(header::CALL));
                tool.answer(&again, &[], b"by another").await;
                assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "by another"));
            }
            EffectClass::AtMostOnce | EffectClass::Reconcilable => {
                let result = world.result().await;
                // A reconcilable tool is probed until after the deadline.
                let is_soon = gone.elapsed() < SOON;
                assert_eq!(is_soon, effect == EffectClass::AtMostOnce, "{:?}", gone.elapsed());
                assert_eq!(result.outcome, Outcome::Unknown);
                assert!(result.content.contains("process ended"), "{}", result.content);
                assert!(tool.has_no_call().await);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn call_that_kills_every_replica_ends() {
    for (effect, outcome) in [(EffectClass::Pure, Outcome::Error), (EffectClass::Idempotent, Outcome::Unknown)] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let _executor = world.executor("a");
        world.publish(&world.item(effect)).await;
        for _ in 0..4 {
            let request = tool.next_call().await;
            tool.answer(&request, &[PROGRESS, INSTANCE], b"begun").await;
        }
        let result = world.result().await;
        assert_eq!(result.outcome, outcome);
        assert!(result.content.contains("ended while it worked on the call (4 times)"), "{}", result.content);
    }
}

#[tokio::test(start_paused = true)]
async fn call_whose_last_replica_died_is_not_reported_as_uncalled() {
    for (effect, outcome) in [(EffectClass::Pure, Outcome::Error), (EffectClass::Idempotent, Outcome::Unknown)] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let _executor = world.executor("a");
        world.publish(&world.item(effect)).await;
        let request = tool.next_call().await;
        tool.answer(&request, &[PROGRESS, INSTANCE], b"begun").await;
        drop(tool);
        let result = world.result().await;
        assert_eq!(result.outcome, outcome, "{}", result.content);
        assert!(!result.content.contains("was not called"), "{}", result.content);
    }
}

#[tokio::test(start_paused = true)]
async fn call_taken_over_by_another_executor_has_its_whole_time() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let (first, life) = world.executor("a");
    world.publish(&world.item(EffectClass::Idempotent)).await;
    let request = tool.next_call().await;
    for _ in 0..5 {
        sleep(Duration::from_secs(30)).await;
        tool.answer(&request, &[PROGRESS], b"").await;
    }
    life.kill();
    drop(first);
    let _second = world.executor("b");
    let again = tool.next_call().await;
    sleep(Duration::from_secs(50)).await;
    tool.answer(&again, &[], b"done").await;
    world.wait_for(async || (!world.results().await.is_empty()).then_some(())).await;
    assert_eq!(summarize(&world.results().await[0]), (Outcome::Ok, None, "done"));
}
