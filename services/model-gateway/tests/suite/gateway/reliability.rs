//! Retries, alternative providers, context fallbacks and circuit breakers.

use std::time::Duration;

use bus::SubscriptionEvent;
use contract::commit::Phase;
use contract::event::{Envelope, ErrorEvent, Topic};
use contract::model::{FailureKind, FinishReason};
use contract::{CallId, SessionId};
use futures::StreamExt;
use tokio::time::Instant;

use super::world::{World, poll_until};

/// Providers with their scripts.
fn world(scripts: &[(&str, &str)]) -> (World, String) {
    let world = World::new();
    let mut models = "providers:\n".to_owned();
    for (name, script) in scripts {
        std::fs::write(world.dir.path().join(format!("{name}.yaml")), format!("delay_ms: 0\nsteps: [{script}]"))
            .unwrap();
        models.extend(["  ", name, ": {kind: scripted, script: ", name, ".yaml}\n"]);
    }
    (world, models)
}

async fn publish_call(world: &World, model: &str) {
    world.commit(0, Phase::Running, &["m1-1.1"]).await;
    let mut item = world.item("hi");
    item.model = model.to_owned();
    world.publish_item(&item).await;
}

#[tokio::test(start_paused = true)]
async fn failure_before_any_output_is_retried_after_the_requested_wait() {
    let (world, models) = world(&[("a", "{text: so, fail: {kind: rate_limited, retry_after: 3, times: 0}}")]);
    // Only a step without text is retried: published text cannot be taken back.
    std::fs::write(
        world.dir.path().join("a.yaml"),
        "delay_ms: 0\nsteps:\n  - {when: 'true', fail: {kind: rate_limited, retry_after: 3, times: 2}, text: ''}\n",
    )
    .unwrap();
    publish_call(&world, "a/x").await;
    let began = Instant::now();
    let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 1).await;
    let finished = world.wait_for_finished().await;
    assert!(began.elapsed() >= Duration::from_secs(6), "{:?}", began.elapsed());
    assert_eq!(finished.meta.attempt, 1);
}

/// Notices about failed tries that viewers received.
async fn read_notices(errors: &mut bus::Subscription) -> Vec<ErrorEvent> {
    let mut notices = Vec::new();
    while let Ok(Some(event)) = tokio::time::timeout(Duration::from_secs(1), errors.next()).await {
        let SubscriptionEvent::Message(message) = event else { continue };
        let envelope: Envelope = serde_json::from_slice(&message.payload).unwrap();
        assert_eq!(envelope.seq, None, "a notice is no fact");
        notices.push(serde_json::from_str(envelope.data.get()).unwrap());
    }
    notices
}

#[tokio::test(start_paused = true)]
async fn failed_try_is_published_to_viewers() {
    let (world, models) = world(&[("a", "{text: '', fail: {kind: overloaded, retry_after: 2, times: 2}}")]);
    let mut errors = world.bus.topic(&world.key.tenant, Topic::Error).await.unwrap();
    publish_call(&world, "a/x").await;
    let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 1).await;
    world.wait_for_finished().await;
    let notices = read_notices(&mut errors).await;
    assert_eq!(notices.len(), 2, "{notices:?}");
    for notice in &notices {
        assert!(notice.message.starts_with("step \"\" of the script fails as scripted"), "{}", notice.message);
        assert!(notice.message.contains("next try in 2"), "{}", notice.message);
        assert!(notice.retryable && notice.during == "model call m1-1", "{notice:?}");
        assert_eq!(notice.code.as_str(), "model_overloaded");
    }
}

#[tokio::test]
async fn timeouts_of_one_session_do_not_open_the_circuit_for_others() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let world = World::new();
    let models =
        format!("providers: {{a: {{kind: openai_chat, base_url: 'http://{}'}}}}", listener.local_addr().unwrap());
    let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 8).await;
    let hasty = async |session: &str| {
        let mut other = World::on(world.server.clone());
        other.key.session = SessionId::new(session).unwrap();
        other.commit(0, Phase::Running, &["m1-1.1"]).await;
        let mut item = other.item("hi");
        "a/x".clone_into(&mut item.model);
        (item.streaming.first_byte, item.streaming.idle) = (1, 1);
        other.publish_item(&item).await;
        other
    };
    let (one, two) = (hasty("s1").await, hasty("s2").await);
    for session in [one, two] {
        let failed = session.wait_for_failed().await;
        assert_eq!(failed.kind, FailureKind::TimedOut);
        assert!(!failed.message.contains("failed repeatedly"), "{}", failed.message);
    }
}

#[tokio::test(start_paused = true)]
async fn failure_after_published_output_is_not_retried() {
    let (world, models) = world(&[("a", "{text: half a, fail: {kind: truncated, times: 1}}")]);
    publish_call(&world, "a/x").await;
    let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 1).await;
    let failed = world.wait_for_failed().await;
    assert_eq!(failed.kind, FailureKind::Truncated);
    assert!(failed.usage.output > 0, "what had come was paid for");
    assert_eq!(failed.text, "half a");
}

#[tokio::test(start_paused = true)]
async fn long_wait_is_returned_to_the_orchestrator() {
    let (world, models) = world(&[("a", "{fail: {kind: rate_limited, retry_after: 40}}")]);
    publish_call(&world, "a/x").await;
    let began = Instant::now();
    let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 1).await;
    let failed = world.wait_for_failed().await;
    assert_eq!(failed.kind, FailureKind::RateLimited);
    assert!((40_000..44_001).contains(&failed.retry_after_ms.unwrap()), "{failed:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn provider_failing_alternative_is_tried() {
    for kind in ["rate_limited", "overloaded", "unreachable", "hung", "auth", "quota", "bad_request"] {
        let (world, mut models) = world(&[("a", &format!("{{fail: {{kind: {kind}}}}}")), ("b", "{text: from b}")]);
        models += "models: {x: {provider: a, alternatives: [{provider: b, model: bx, prices: {output: 1e6}}]}}\n";
        publish_call(&world, "x").await;
        let began = Instant::now();
        let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 1).await;
        let finished = world.wait_for_finished().await;
        assert_eq!((finished.text.as_str(), finished.provider.as_str()), ("from b", "b"), "{kind}");
        assert!(finished.cost_usd >= 1.0, "what it costs there: {}", finished.cost_usd);
        assert!(began.elapsed() < Duration::from_millis(400), "{kind}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn request_too_long_is_sent_to_the_context_fallback() {
    let (world, mut models) = world(&[("a", "{fail: {kind: context_length}}"), ("b", "{text: from b}")]);
    models += "models: {x: {provider: a, context_fallback: y}, y: {provider: b}}\n";
    publish_call(&world, "x").await;
    let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 1).await;
    assert_eq!(world.wait_for_finished().await.text, "from b");
}

#[tokio::test(start_paused = true)]
async fn request_too_long_for_the_fallback_fails_with_context_length() {
    let (world, mut models) =
        world(&[("a", "{fail: {kind: context_length}}"), ("b", "{fail: {kind: context_length}}")]);
    models += "models: {x: {provider: a, context_fallback: y}, y: {provider: b}}\n";
    publish_call(&world, "x").await;
    let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 1).await;
    assert_eq!(world.wait_for_failed().await.kind, FailureKind::ContextLength);
}

#[tokio::test(start_paused = true)]
async fn refused_content_is_not_retried() {
    let (world, mut models) = world(&[("a", "{fail: {kind: refused}}"), ("b", "{text: from b}")]);
    models += "models: {x: {provider: a, alternatives: [{provider: b}]}}\n";
    publish_call(&world, "x").await;
    let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 1).await;
    assert_eq!(world.wait_for_failed().await.kind, FailureKind::Refused);
}

#[tokio::test(start_paused = true)]
async fn circuit_open_fails_calls_until_a_probe_succeeds() {
    // The first call fails four times. The second call fails once, and finds the circuit open.
    let (world, models) = world(&[("a", "{text: '', fail: {kind: overloaded, times: 5}}")]);
    publish_call(&world, "a/x").await;
    let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 1).await;
    assert_eq!(world.wait_for_failed().await.kind, FailureKind::Overloaded);

    let add_session = async |session: &str| {
        let mut other = World::on(world.server.clone());
        other.key.session = SessionId::new(session).unwrap();
        publish_call(&other, "a/x").await;
        other
    };
    let second = add_session("s2").await;
    let failed = second.wait_for_failed().await;
    let (kind, wait) = (failed.kind, failed.retry_after_ms.unwrap());
    assert!(kind == FailureKind::Overloaded && (1..=1_000).contains(&wait), "{failed:?}");
    assert!(failed.message.contains("the last failure was model_overloaded"), "{}", failed.message);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(add_session("s3").await.wait_for_finished().await.meta.call, CallId::model(1, 1));
}

#[tokio::test(start_paused = true)]
async fn call_waiting_for_the_rate_limit_cancelled_costs_nothing() {
    let (world, mut models) = world(&[("a", "{text: so}")]);
    models = models.replace("script: a.yaml", "script: a.yaml, limits: {requests_per_minute: 10}");
    models += "models: {x: {provider: a, prices: {input: 1e6, output: 1e6}}}\n";
    let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 4).await;
    publish_call(&world, "x").await;
    world.wait_for_finished().await;
    let mut other = World::on(world.server.clone());
    other.key.session = SessionId::new("s2").unwrap();
    publish_call(&other, "x").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(other.is_unanswered().await);
    other.bus.publish_cancel(&other.key, &World::call()).await.unwrap();
    let cancelled =
        poll_until(async || if other.is_unanswered().await { None } else { Some(other.wait_for_finished().await) })
            .await;
    assert_eq!((cancelled.usage.total(), cancelled.cost_usd), (0, 0.0));
}

#[tokio::test(start_paused = true)]
async fn reply_with_the_maximum_tokens_finishes_with_length() {
    for (max, reason) in [(7, FinishReason::Length), (8, FinishReason::Stop)] {
        let (world, models) = world(&[("a", "{text: so it goes, usage: {input: 9, output: 7}}")]);
        world.commit(0, Phase::Running, &["m1-1.1"]).await;
        let mut item = world.item("hi");
        "a/x".clone_into(&mut item.model);
        item.parameters.insert("max_tokens".to_owned(), max.into());
        world.publish_item(&item).await;
        let (_gateway, _) = world.start_gateway_with("g", world.parse_providers(&models), 1).await;
        let finished = world.wait_for_finished().await;
        assert_eq!((finished.finish_reason, finished.raw_finish_reason.as_str()), (reason, "stop"));
    }
}
