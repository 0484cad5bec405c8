//! A gateway on the in-memory bus: when a call starts, what viewers receive, and that it is reported once.

mod money;
mod reliability;
mod runs;
mod transcripts;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bus::SubscriptionEvent;
use bus::rpc::RpcHandler;
use bus::work::Publication;
use bus_memory::{Action, Fault, Faults, MemoryServer, Operation};
use bytes::Bytes;
use contract::command::Verb;
use contract::commit::{PARKING_FOLD, Phase};
use contract::event::{Envelope, Topic};
use contract::fleet::ResultAnswer;
use contract::model::{Channel, Chunk, FailureKind, FinishReason, ModelItem, PartialCall};
use contract::subject::{self};
use contract::{CommandId, Json, Timestamp};
use futures::{FutureExt, StreamExt};
use model_gateway::{Clock, Gateway, GatewayConfig, Providers, SystemClock};
use service::health::Readiness;
use service::reload::Look;

use world::{World, poll_until, sleep_seconds};

const SCRIPT: &str = "
delay_ms: 1000
steps:
  - {when: \"'broken' in prompt\", text: '{{ 1 | nothing }}'}
  - {when: \"'recite' in prompt\", text: '{% for m in messages %}{{ m.content }} {% endfor %}'}
  - {when: \"'tools' in prompt\", text: 'Look.', tool_calls: [{name: f, arguments: {a: 1}}], signal: {status: CONTINUE}}
  - {when: \"'much' in prompt\", text: \"{{ 'x' * 300000 }}\"}
  - {text: 'one two three four five six seven eight nine ten'}
";

#[tokio::test(start_paused = true)]
async fn open_call_is_streamed_and_reported_once() {
    let world = World::new();
    let mut events = world.bus.events(&world.key).await.unwrap();
    world.commit(0, Phase::Running, &["m1-1.1"]).await;
    world.publish_item(&world.item("hello")).await;
    let (gateway, _) = world.start_gateway("g").await;
    let finished = world.wait_for_finished().await;
    assert_eq!(finished.text, "one two three four five six seven eight nine ten");
    assert_eq!((finished.finish_reason, finished.provider.as_str()), (FinishReason::Stop, "s"));
    assert_eq!((finished.meta.slot, finished.meta.call.as_str(), finished.meta.attempt), (0, "m1-1", 1));
    assert!(finished.usage.total() > 0);
    world.wait_until_empty().await;
    gateway.drain(Duration::from_secs(1)).await;

    let mut chunks = Vec::new();
    while let Some(SubscriptionEvent::Message(message)) = events.next().await {
        let envelope: Envelope = serde_json::from_slice(&message.payload).unwrap();
        assert_eq!((envelope.seq, envelope.session_id.as_str()), (None, "s1"));
        let chunk: Chunk = serde_json::from_str(envelope.data.get()).unwrap();
        let last = chunk.last;
        chunks.push(chunk);
        if last {
            break;
        }
    }
    assert_eq!(chunks.len(), 11, "ten words, far apart, and the final marker");
    assert!((0..).zip(&chunks).all(|(n, chunk)| chunk.index == n && chunk.attempt == "1.1"), "{chunks:?}");
    assert!(chunks.iter().all(|chunk| chunk.channel == Channel::Text));
    assert_eq!(chunks.iter().map(|chunk| chunk.delta.as_str()).collect::<String>(), finished.text);
}

#[tokio::test(start_paused = true)]
async fn result_is_sent_to_its_orchestrator_and_stored_unless_that_says_that_the_log_has_it() {
    for (answer, prompt, is_stored) in [
        (Some(ResultAnswer::InLog), "hello", false),
        (Some(ResultAnswer::Store), "hello", true),
        (None, "hello", true),
        (Some(ResultAnswer::InLog), "much", true),
    ] {
        let (world, replica, asked) = (World::new(), CommandId::new("r1").unwrap(), Arc::new(AtomicUsize::new(0)));
        let counting = asked.clone();
        let answer_result: RpcHandler = Arc::new(move |_| {
            counting.fetch_add(1, Ordering::SeqCst);
            std::future::ready(answer.map(|answer| serde_json::to_vec(&answer).unwrap().into())).boxed()
        });
        let _results = world.bus.serve(&subject::results_for(&replica), None, answer_result).await.unwrap();
        world.commit(0, Phase::Running, &["m1-1.1"]).await;
        let orchestrator = world.bus.clone().with_address(replica);
        orchestrator.publish_model_item(&world.key, &world.item(prompt), Publication::First).await.unwrap();
        let (_gateway, _) = world.start_gateway("g").await;
        world.wait_until_empty().await;
        assert_eq!(
            (world.is_unanswered().await, asked.load(Ordering::SeqCst)),
            (!is_stored, usize::from(prompt == "hello"))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn call_without_streaming_publishes_no_chunk() {
    let world = World::new();
    let mut chunks = world.bus.topic(&world.key.tenant, Topic::AiChunkReceived).await.unwrap();
    world.commit(0, Phase::Running, &["m1-1.1"]).await;
    let mut item = world.item("hello");
    item.streaming.enabled = false;
    world.publish_item(&item).await;
    let (gateway, _) = world.start_gateway("g").await;
    assert_eq!(world.wait_for_finished().await.text, "one two three four five six seven eight nine ten");
    gateway.drain(Duration::from_secs(1)).await;
    let next = tokio::time::timeout(Duration::from_secs(1), chunks.next()).await;
    assert!(!matches!(next, Ok(Some(SubscriptionEvent::Message(_)))), "{next:?}");
}

#[tokio::test(start_paused = true)]
async fn tool_calls_are_published_as_they_arrive_without_the_signal() {
    let world = World::new();
    let mut partial = world.bus.topic(&world.key.tenant, Topic::ToolCallPartial).await.unwrap();
    world.commit(0, Phase::Running, &["m1-1.1"]).await;
    world.publish_item(&world.item("use tools")).await;
    let (_gateway, _) = world.start_gateway("g").await;
    let finished = world.wait_for_finished().await;
    let names: Vec<&str> = finished.tool_calls.iter().map(|call| call.function.name.as_str()).collect();
    assert_eq!((names, finished.finish_reason), (vec!["f", "continuation"], FinishReason::ToolCalls));
    let mut arguments = String::new();
    while let Ok(Some(SubscriptionEvent::Message(message))) =
        tokio::time::timeout(Duration::from_secs(1), partial.next()).await
    {
        let envelope: Envelope = serde_json::from_slice(&message.payload).unwrap();
        let call: PartialCall = serde_json::from_str(envelope.data.get()).unwrap();
        assert_eq!((call.index, call.name.as_deref()), (0, Some("f")));
        arguments += &call.delta;
    }
    assert_eq!(arguments, "{\"a\":1}");
}

#[tokio::test(start_paused = true)]
async fn i5_call_closed_or_paused_does_not_start() {
    // A closed call is acknowledged and does not start.
    for (phase, open) in [(Phase::Running, vec!["m1-1.2", "m1-2.1"]), (Phase::Ended, vec![]), (Phase::Idle, vec![])] {
        let world = World::new();
        world.commit(0, phase, &open).await;
        world.publish_item(&world.item("hello")).await;
        let (_gateway, _) = world.start_gateway("g").await;
        world.wait_until_empty().await;
        assert!(world.is_unanswered().await);
    }
    // The item of a paused session is acknowledged, since the resume publishes it again.
    let world = World::new();
    world.commit(0, Phase::Paused, &["m1-1.1"]).await;
    world.publish_item(&world.item("hello")).await;
    let (_gateway, _) = world.start_gateway("g").await;
    world.wait_until_empty().await;
    assert!(world.is_unanswered().await);
    world.commit(1, Phase::Running, &["m1-1.1"]).await;
    let again = world.bus.publish_model_item(&world.key, &world.item("hello"), Publication::Replacing).await;
    again.unwrap();
    assert_eq!(world.wait_for_finished().await.finish_reason, FinishReason::Stop);
    // An older version publishes nothing at the resume: the item waits for that.
    let world = World::new();
    world.commit_of(PARKING_FOLD - 1, 0, Phase::Paused, &["m1-1.1"], None).await;
    let mut item = world.item("hello");
    item.meta.deadline = world.server.now().after(Duration::from_hours(9));
    world.publish_item(&item).await;
    let (_gateway, _) = world.start_gateway("g").await;
    sleep_seconds(3_600).await;
    assert!(world.is_unanswered().await);
    world.commit(1, Phase::Running, &["m1-1.1"]).await;
    assert_eq!(world.wait_for_finished().await.finish_reason, FinishReason::Stop);
    // A call whose commit is not visible yet waits for it.
    let world = World::new();
    world.publish_item(&world.item("hello")).await;
    let (_gateway, _) = world.start_gateway("g").await;
    sleep_seconds(5).await;
    assert!(world.is_unanswered().await);
    world.commit(0, Phase::Running, &["m1-1.1"]).await;
    world.wait_for_finished().await;
}

#[tokio::test(start_paused = true)]
async fn call_cancelled_ends_with_the_partial_reply() {
    for by_message in [true, false] {
        let world = World::new();
        world.commit(0, Phase::Running, &["m1-1.1"]).await;
        world.publish_item(&world.item("hello")).await;
        let (_gateway, _) = world.start_gateway("g").await;
        let view = poll_until(async || world.bus.view(&world.key).await.unwrap().filter(|view| view.index > 1)).await;
        assert!(view.text.starts_with("one two") && view.attempt == "1.1", "{view:?}");
        if by_message {
            world.bus.publish_cancel(&world.key, &World::call()).await.unwrap();
        } else {
            world.commit(1, Phase::Ended, &[]).await;
        }
        let finished = world.wait_for_finished().await;
        assert_eq!(finished.finish_reason, FinishReason::Cancelled);
        assert!(finished.text.starts_with("one two ") && !finished.text.ends_with("ten"), "{}", finished.text);
        assert!(finished.usage.output > 0);
        world.wait_until_empty().await;
        assert_eq!(world.bus.view(&world.key).await.unwrap(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn call_that_fails_sends_the_text_that_had_come() {
    let world = World::new();
    world.commit(0, Phase::Running, &["m1-1.1"]).await;
    let mut item = world.item("hello");
    item.meta.deadline = world.server.now().after(Duration::from_secs(5));
    world.publish_item(&item).await;
    let (_gateway, _) = world.start_gateway("g").await;
    let failed = world.wait_for_failed().await;
    assert_eq!(failed.kind, contract::model::FailureKind::TimedOut);
    assert!(failed.text.starts_with("one two ") && !failed.text.ends_with("ten"), "{failed:?}");
}

/// Attempts of the published chunks.
async fn read_attempts(chunks: &mut bus::Subscription) -> Vec<String> {
    let mut attempts = Vec::new();
    while let Ok(Some(event)) = tokio::time::timeout(Duration::from_secs(1), chunks.next()).await {
        let SubscriptionEvent::Message(message) = event else { continue };
        let envelope: Envelope = serde_json::from_slice(&message.payload).unwrap();
        attempts.push(serde_json::from_str::<Chunk>(envelope.data.get()).unwrap().attempt);
    }
    attempts
}

/// Checks that the call ends, and that viewers received one attempt of it.
async fn assert_run_once(world: &World, gateways: [Gateway; 2], chunks: &mut bus::Subscription) {
    world.wait_for_finished().await;
    world.wait_until_empty().await;
    for gateway in gateways {
        gateway.drain(Duration::from_secs(1)).await;
    }
    let mut attempts = read_attempts(chunks).await;
    attempts.dedup();
    assert_eq!(attempts, ["1.1"]);
}

#[tokio::test(start_paused = true)]
async fn delivery_repeated_while_a_call_runs_starts_no_second_call() {
    let world = World::new();
    let mut chunks = world.bus.topic(&world.key.tenant, Topic::AiChunkReceived).await.unwrap();
    world.commit(0, Phase::Running, &["m1-1.1"]).await;
    let (one, _) = world.start_gateway("one").await;
    let (two, _) = world.start_gateway("two").await;
    world.publish_item(&world.item("hello")).await;
    poll_until(async || world.bus.view(&world.key).await.unwrap()).await;
    world.server.restart();
    assert_run_once(&world, [one, two], &mut chunks).await;
}

/// Refuses to store results while it is set.
#[derive(Default)]
struct ResultsRefused(AtomicBool);

impl Faults for ResultsRefused {
    fn decide(&self, op: Operation<'_>) -> Fault {
        let result = op.action == Action::Append && op.subject.starts_with("ai_loop.control.");
        if result && self.0.load(Ordering::SeqCst) { Fault::NotDone } else { Fault::None }
    }
}

#[tokio::test(start_paused = true)]
async fn result_not_stored_yet_call_is_not_run_again() {
    let full = Arc::new(ResultsRefused::default());
    let world = World::on(MemoryServer::with_faults(full.clone()));
    let mut chunks = world.bus.topic(&world.key.tenant, Topic::AiChunkReceived).await.unwrap();
    full.0.store(true, Ordering::SeqCst);
    world.commit(0, Phase::Running, &["m1-1.1"]).await;
    let (one, _) = world.start_gateway("one").await;
    let (two, _) = world.start_gateway("two").await;
    world.publish_item(&world.item("hello")).await;
    poll_until(async || world.bus.view(&world.key).await.unwrap()).await;
    // The script takes ten seconds.
    poll_until(async || world.bus.view(&world.key).await.unwrap().is_none().then_some(())).await;
    world.server.restart();
    tokio::time::sleep(Duration::from_secs(20)).await;
    full.0.store(false, Ordering::SeqCst);
    assert_run_once(&world, [one, two], &mut chunks).await;
}

#[tokio::test(start_paused = true)]
async fn gateway_dead_another_takes_over_unless_the_result_is_stored() {
    for answered in [false, true] {
        let world = World::new();
        world.commit(0, Phase::Running, &["m1-1.1"]).await;
        world.publish_item(&world.item("hello")).await;
        let (_dead, life) = world.start_gateway("dead").await;
        poll_until(async || world.bus.view(&world.key).await.unwrap()).await;
        life.kill();
        if answered {
            let id = CommandId::new("m1-1-1").unwrap();
            world.bus.send_control(&world.key, Verb::ModelFinished, &id, Bytes::from_static(b"{}")).await.unwrap();
        }
        let mut chunks = world.bus.topic(&world.key.tenant, Topic::AiChunkReceived).await.unwrap();
        let (_other, _) = world.start_gateway("other").await;
        world.wait_until_empty().await;
        let result = world.wait_for_result(Verb::ModelFinished).await;
        assert_eq!(result == "{}", answered, "{result:?}");
        let attempts = read_attempts(&mut chunks).await;
        assert_eq!(attempts.is_empty(), answered, "a second call shows: {attempts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn gateway_drained_returns_its_call() {
    let world = World::new();
    world.commit(0, Phase::Running, &["m1-1.1"]).await;
    world.publish_item(&world.item("hello")).await;
    let (one, _) = world.start_gateway("one").await;
    poll_until(async || world.bus.view(&world.key).await.unwrap()).await;
    one.drain(Duration::from_secs(2)).await;
    assert!(world.is_unanswered().await);
    let (_two, _) = world.start_gateway("two").await;
    world.wait_for_finished().await;
}

#[tokio::test(start_paused = true)]
async fn call_that_cannot_start_fails_at_once_with_the_reason() {
    type Change = fn(&mut ModelItem);
    let rows: [(&str, Change, FailureKind, &str); 4] = [
        ("hello", |item| item.model = "nobody".to_owned(), FailureKind::BadRequest, "no model \"nobody\""),
        ("hello", |item| item.meta.deadline = Timestamp::from_millis(1), FailureKind::TimedOut, "deadline"),
        ("broken", |_| {}, FailureKind::BadRequest, "of the script"),
        ("hello", |item| item.messages[0] = Json::of(&7), FailureKind::BadRequest, "cannot be read"),
    ];
    for (prompt, change, kind, part) in rows {
        let world = World::new();
        world.commit(0, Phase::Running, &["m1-1.1"]).await;
        let mut item = world.item(prompt);
        change(&mut item);
        world.publish_item(&item).await;
        let (_gateway, _) = world.start_gateway("g").await;
        let failed = world.wait_for_failed().await;
        assert_eq!(failed.kind, kind, "{failed:?}");
        assert!(failed.message.contains(part), "{failed:?}");
        world.wait_until_empty().await;
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_passed_running_call_times_out() {
    let world = World::new();
    world.commit(0, Phase::Running, &["m1-1.1"]).await;
    let mut item = world.item("hello");
    item.meta.deadline = world.server.now().after(Duration::from_secs(4));
    world.publish_item(&item).await;
    let (_gateway, _) = world.start_gateway("g").await;
    let failed = world.wait_for_failed().await;
    assert_eq!(failed.kind, FailureKind::TimedOut);
    assert!(failed.usage.output > 0, "what came was paid for");
}

#[tokio::test(start_paused = true)]
async fn item_that_cannot_be_read_is_reported_and_becomes_a_dead_letter() {
    let world = World::new();
    world.commit(0, Phase::Running, &["m1-1.1"]).await;
    let subject = subject::model_item(&world.key, &World::call());
    let body = Bytes::from_static(b"{\"meta\":7}");
    world.bus.transport().append(&subject, false, Vec::new(), body).await.unwrap();
    let (_gateway, _) = world.start_gateway("g").await;
    let failed = world.wait_for_failed().await;
    assert_eq!((failed.kind, failed.meta.call.as_str()), (FailureKind::BadRequest, "m1-1"));
    world.wait_until_empty().await;
}

#[test]
fn models_and_scripts_changed_are_reloaded_and_connections_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let two = "providers:\n  a: {kind: openai_chat, base_url: 'http://a'}\n  s: {kind: scripted, script: s.yaml}\n";
    write("models.yaml", two);
    write("s.yaml", SCRIPT);
    let readiness = Readiness::new("gateway");
    let providers = Providers::follow(Some(dir.path().to_owned()), readiness.clone()).unwrap();
    let first = providers.get();
    let provider = |providers: &Providers, model: &str| providers.find_routes(model).unwrap().routes.remove(0).client;

    write("models.yaml", &format!("{two}models:\n  new: {{provider: a, prices: {{input: 1.0}}}}\n"));
    assert!(!first.has_model("new"));
    assert_eq!(providers.refresh(), Look::Taken);
    let second = providers.get();
    assert!(second.has_model("new") && !first.has_model("new"), "a call goes on with what it began with");
    assert!(Arc::ptr_eq(&provider(&first, "a/x"), &provider(&second, "new")));

    write("models.yaml", &two.replace("http://a", "http://other"));
    assert_eq!(providers.refresh(), Look::Taken);
    assert!(!Arc::ptr_eq(&provider(&second, "a/x"), &provider(&providers.get(), "a/x")));

    // Scripts are reloaded too, and a broken or missing one is reported.
    write("s.yaml", "steps: [{txt: x}]\n");
    let Look::Broken(warning) = providers.refresh() else { panic!("a script that cannot be used") };
    assert!(warning.contains("s.yaml:1:10: "), "{warning}");
    std::fs::remove_file(dir.path().join("s.yaml")).unwrap();
    assert!(matches!(providers.refresh(), Look::Broken(_)));
    assert!(providers.get().has_model("s/x") && readiness.warnings().count() == 1);
    write("s.yaml", SCRIPT);
    assert_eq!(providers.refresh(), Look::Taken);
    assert_eq!(readiness.warnings().count(), 0);
}

/// The prompt-composer may have read a new model before the gateway.
#[tokio::test(start_paused = true)]
async fn model_not_known_yet_is_looked_up_on_the_disk() {
    let world = World::new();
    let write = |name: &str, text: &str| std::fs::write(world.dir.path().join(name), text).unwrap();
    write("models.yaml", "providers: {s: {kind: scripted, script: script.yaml}}\n");
    let config = GatewayConfig { config_dir: Some(world.dir.path().to_owned()), ..GatewayConfig::default() };
    let gateway = Gateway::start(config, world.server.bus()).await.unwrap();
    write("models.yaml", "providers: {s: {kind: scripted, script: script.yaml}}\nmodels: {new: {provider: s}}\n");

    world.commit(0, Phase::Running, &["m1-1.1"]).await;
    let mut item = world.item("go");
    item.model = "new".to_owned();
    item.meta.deadline = SystemClock.now().after(Duration::from_mins(10));
    world.publish_item(&item).await;
    assert!(world.wait_for_finished().await.text.starts_with("one two three"));
    gateway.drain(Duration::from_secs(1)).await;
}
