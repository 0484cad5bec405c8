//! The executor as the loop and the tools see it, on the in-memory bus and in virtual time.

mod catalogue;
mod losses;
mod operator_requests;
mod probe;
mod progress;
mod world;

use std::time::Duration;

use bus_memory::MemoryServer;
use bytes::Bytes;
use contract::commit::Phase;
use contract::streams::{Bucket, Objects};
use contract::subject::{self, SessionKey};
use contract::tool::{EffectClass, FullResultRef, Outcome, ToolResult, header};
use contract::{ErrorCode, Json, Timestamp, ToolName};
use tokio::time::Instant;

use world::{World, call};

fn summarize(result: &ToolResult) -> (Outcome, Option<ErrorCode>, &str) {
    (result.outcome, result.code.clone(), result.content.as_str())
}

#[tokio::test(start_paused = true)]
async fn call_reaches_the_tool_and_its_result_the_session() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let _executor = world.executor("a");
    let item = world.item(EffectClass::AtMostOnce);
    world.publish(&item).await;
    let request = tool.next_call().await;
    let deadline = item.meta.deadline.to_string();
    for (name, value) in [
        (header::CALL, "s1-c1-1-1"),
        (header::SESSION, "s1"),
        (header::AGENT, "e"),
        (header::ATTEMPT, "1.1"),
        (header::DEADLINE, &deadline),
    ] {
        assert_eq!(request.header(name), Some(value), "{name}");
    }
    assert_eq!(&*request.payload, br#"{"n":1}"#);
    let claims = world.bus.transport().kv_list(Bucket::Claims, ">").await.unwrap();
    let [(claim, value)] = &claims[..] else { panic!("not one claim: {claims:?}") };
    assert_eq!(claim, "default.s1.c1-1-1.0");
    let (_owner, claimed) = std::str::from_utf8(value).unwrap().split_once(' ').unwrap();
    assert_eq!(claimed, item.meta.deadline.as_millis().to_string());
    tool.answer(&request, &[(header::PROGRESS, "1")], b"half").await;
    tool.answer(&request, &[], br#"{"done":true}"#).await;
    let result = world.result().await;
    assert_eq!(summarize(&result), (Outcome::Ok, None, r#"{"done":true}"#));
    assert_eq!((result.meta.slot, result.meta.attempt), (0, 1));
    world.wait_until_settled().await;
}

#[tokio::test(start_paused = true)]
async fn item_that_cannot_be_read_is_reported_and_becomes_a_dead_letter() {
    let world = World::new().await;
    let tool = ToolName::new("act").unwrap();
    let subject = subject::tool_item(&world.key, &tool, &call());
    let body = Bytes::from_static(b"{\"meta\":7}");
    world.bus.transport().append(&subject, false, Vec::new(), body).await.unwrap();
    let _executor = world.executor("a");
    let result = world.result().await;
    let text = "the call cannot be read at column 9";
    assert_eq!(summarize(&result), (Outcome::Error, Some(ErrorCode::BadRequest), text));
    world.wait_until_settled().await;
}

#[tokio::test(start_paused = true)]
async fn tool_reply_of_any_kind_becomes_a_result() {
    let long = "x".repeat(5_000);
    let error = Some(ErrorCode::ToolError);
    for (headers, body, outcome, code, part) in [
        (&[(header::ERROR, "no such city")][..], &b""[..], Outcome::Error, &error, "no such city"),
        (&[(header::SERVICE_ERROR, "boom")], b"", Outcome::Error, &error, "boom"),
        (&[], b"\xff\xff", Outcome::Error, &error, "2 bytes that are not UTF-8"),
        (&[], long.as_bytes(), Outcome::Ok, &None, "of 5000 left out"),
        (&[(header::OUTCOME, "unknown"), (header::ERROR, "lost it")], b"", Outcome::Unknown, &None, "lost it"),
        (&[], b"", Outcome::Ok, &None, ""),
    ] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let _executor = world.executor("a");
        world.publish(&world.item(EffectClass::Pure)).await;
        let request = tool.next_call().await;
        tool.answer(&request, headers, body).await;
        let result = world.result().await;
        assert_eq!((result.outcome, &result.code), (outcome, code));
        assert!(result.content.contains(part) && result.content.len() <= 1_000, "{}", result.content);
    }
}

#[tokio::test(start_paused = true)]
async fn call_without_a_tool_is_answered_at_once() {
    let world = World::new().await;
    let _executor = world.executor("a");
    // Before that the fleet, and the tool with it, may be starting.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let began = Instant::now();
    world.publish(&world.item(EffectClass::AtMostOnce)).await;
    let result = world.result().await;
    assert_eq!((result.outcome, result.code), (Outcome::Error, Some(ErrorCode::NoToolAvailable)));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn call_of_a_silent_tool_is_unknown_unless_pure() {
    for (effect, outcome, part) in [
        (EffectClass::Pure, Outcome::Timeout, "no answer within 60 seconds"),
        (EffectClass::Idempotent, Outcome::Unknown, "nobody knows whether it took effect"),
        (EffectClass::AtMostOnce, Outcome::Unknown, "nobody knows whether it took effect"),
    ] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let _executor = world.executor("a");
        let began = Instant::now();
        world.publish(&world.item(effect)).await;
        tool.next_call().await;
        let result = world.result().await;
        assert_eq!(result.outcome, outcome);
        assert!(result.content.contains(part), "{}", result.content);
        assert!((59..=61).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
        assert_eq!(tool.next_cancel().await.header(header::CALL), Some("s1-c1-1-1"));
    }
}

#[tokio::test(start_paused = true)]
async fn result_too_long_is_stored_whole() {
    let long = format!("<{}>", "x".repeat(5_000));
    let world = World::new().await;
    let mut tool = world.tool().await;
    let _executor = world.executor("a");
    world.publish(&world.item(EffectClass::Pure)).await;
    let request = tool.next_call().await;
    tool.answer(&request, &[], long.as_bytes()).await;
    let result = world.result().await;
    assert!(result.content.starts_with('<') && result.content.ends_with('>'), "{}", result.content);
    let whole = result.whole.unwrap();
    let SessionKey { tenant, session } = &world.key;
    assert_eq!(whole, FullResultRef { object: FullResultRef::id(tenant, session, None, &call().call), bytes: 5_002 });
    let stored = world.bus.transport().get_object(Objects::Results, &whole.object).await.unwrap();
    assert_eq!(stored.unwrap(), long);
}

#[tokio::test(start_paused = true)]
async fn cancel_ends_the_call_and_reaches_the_tool() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let _executor = world.executor("a");
    world.publish(&world.item(EffectClass::Pure)).await;
    let request = tool.next_call().await;
    world.bus.publish_cancel(&world.key, &call()).await.unwrap();
    assert_eq!(world.result().await.outcome, Outcome::Cancelled);
    assert_eq!(tool.next_cancel().await.header(header::CALL), request.header(header::CALL));
}

#[tokio::test(start_paused = true)]
async fn cancel_lost_is_found_in_the_log() {
    let mut world = World::new().await;
    let mut tool = world.tool().await;
    let _executor = world.executor("a");
    world.publish(&world.item(EffectClass::Pure)).await;
    tool.next_call().await;
    world.commit(Phase::Ended, &[]).await;
    tool.next_cancel().await;
    world.wait_until_settled().await;
    assert!(!world.has_result().await);
}

#[tokio::test(start_paused = true)]
async fn call_closed_is_acknowledged_and_not_sent() {
    for (phase, open) in [(Phase::Ended, &[][..]), (Phase::Running, &["c1-1-1.2"]), (Phase::Paused, &[])] {
        let mut world = World::new().await;
        let mut tool = world.tool().await;
        world.publish(&world.item(EffectClass::Pure)).await;
        world.commit(phase, open).await;
        let _executor = world.executor("a");
        world.wait_until_settled().await;
        assert!(!world.has_result().await);
        assert!(tool.has_no_call().await);
    }
}

#[tokio::test(start_paused = true)]
async fn session_paused_starts_no_call_until_resumed() {
    let mut world = World::new().await;
    let mut tool = world.tool().await;
    let mut item = world.item(EffectClass::Pure);
    item.meta.deadline = world.server.now().after(Duration::from_hours(10));
    world.publish(&item).await;
    world.commit(Phase::Paused, &[&call().to_string()]).await;
    let _executor = world.executor("a");
    // Longer than the deliveries after which an item would become a dead letter.
    for _ in 0..12 {
        assert!(tool.has_no_call().await);
    }
    world.commit(Phase::Running, &[&call().to_string()]).await;
    let request = tool.next_call().await;
    tool.answer(&request, &[], b"done").await;
    assert_eq!(summarize(&world.result().await), (Outcome::Ok, None, "done"));
}

#[tokio::test(start_paused = true)]
async fn call_that_cannot_be_sent_is_answered_with_an_error() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let mut item = world.item(EffectClass::Pure);
    item.arguments = Json::parse("[1]").unwrap();
    world.publish(&item).await;
    let _executor = world.executor("a");
    let result = world.result().await;
    assert_eq!((result.outcome, result.code), (Outcome::Error, Some(ErrorCode::InvalidArguments)));

    let world = World::new().await;
    let mut item = world.item(EffectClass::Pure);
    item.meta.deadline = world.server.now();
    world.publish(&item).await;
    let _executor = world.executor("a");
    let result = world.result().await;
    assert_eq!(result.outcome, Outcome::Timeout);
    assert!(result.content.contains("was not called"));
    assert!(tool.has_no_call().await);
}

#[tokio::test(start_paused = true)]
async fn call_key_differs_for_tenants_and_sessions_of_the_same_id() {
    let mut keys = std::collections::BTreeSet::new();
    for (tenant, started, opened_by) in
        [("default", 1, ""), ("default", 2, ""), ("other", 1, ""), ("default", 1, "c1"), ("default", 1, "c2")]
    {
        let world = World::of_tenant(MemoryServer::new(), tenant).await;
        let mut tool = world.tool().await;
        let _executor = world.executor("a");
        let mut item = world.item(EffectClass::Idempotent);
        item.session_started = Some(Timestamp::from_millis(started));
        opened_by.clone_into(&mut item.opened_by);
        world.publish(&item).await;
        let request = tool.next_call().await;
        let key = request.header(header::CALL).unwrap().to_owned();
        assert!(
            key.starts_with("s1-c1-1-1-") && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'),
            "{key}"
        );
        assert_eq!(request.header(header::SESSION_STARTED), Some(&*Timestamp::from_millis(started).to_string()));
        assert!(keys.insert(key));
    }
}

#[tokio::test(start_paused = true)]
async fn claim_of_an_earlier_session_of_the_same_id_does_not_count() {
    for (earlier, outcome) in [(1, Outcome::Ok), (2, Outcome::Unknown)] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let _executor = world.executor("a");
        let claimed = world.bus.claim(&world.key, &call().call, &[&earlier.to_string()], "another").await;
        assert_eq!(claimed.unwrap(), bus::Claim::Mine);
        let mut item = world.item(EffectClass::AtMostOnce);
        item.session_started = Some(Timestamp::from_millis(2));
        world.publish(&item).await;
        if outcome == Outcome::Ok {
            let request = tool.next_call().await;
            tool.answer(&request, &[], b"done").await;
        }
        assert_eq!(world.result().await.outcome, outcome);
    }
}
