//! Servers that die, and servers that cannot be started.

use serde_json::json;

use crate::mcp::stdio::MODERN;
use crate::mcp::world::{LONG, World, is_alive, wait_for};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_dies_is_restarted_and_its_calls_end_with_the_right_outcome() {
    let world = World::new().await;
    let config = json!({"effects": {"echo": "pure", "work": "pure"}});
    let host = world.serve(json!({"toy": world.toy(MODERN, &config)})).await;
    let child = world.call("mcp__toy__breed", json!({})).await.into_result();
    let mut pure = world.begin("mcp__toy__work", json!({})).await;
    pure.progress().await;
    // The call that killed the server must not run twice: its outcome is unknown.
    let killer = world.call("mcp__toy__die", json!({})).await;
    assert!(killer.unknown && killer.error, "{killer:?}");
    assert!(killer.text.contains("nobody knows whether it took effect"), "{killer:?}");
    assert!(pure.answer().await.into_error().ends_with("it may be called again"));
    assert_eq!(world.call_when_up("mcp__toy__echo", &json!({"text": "again"})).await.into_result(), "again");
    assert_eq!((world.diary.count("starts"), world.diary.count("dies")), (2, 1));
    wait_for(async || (!is_alive(&child)).then_some(())).await;
    host.drain(LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hosts_with_the_same_server_share_its_calls() {
    let world = World::new().await;
    let first = world.serve(json!({"toy": world.toy(MODERN, &json!({}))})).await;
    let second = world.serve(json!({"toy": world.toy(MODERN, &json!({}))})).await;
    assert_eq!(world.diary.count("starts"), 2);
    // The other host answers while one is down: no call finds no tool.
    first.drain(LONG).await;
    for number in 0..20 {
        let text = format!("call {number}");
        assert_eq!(world.call("mcp__toy__echo", json!({"text": text})).await.into_result(), text);
    }
    second.drain(LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_cannot_be_started_delays_no_other() {
    let world = World::new().await;
    let servers = json!({
        "missing": {"command": "there-is-no-such-program"},
        "mute": {"command": "false"},
        "toy": world.toy(MODERN, &json!({})),
    });
    let host = world.serve(servers).await;
    assert_eq!(world.call("mcp__toy__echo", json!({"text": "hello"})).await.into_result(), "hello");
    let names = world.catalogue().await;
    assert!(names.iter().all(|spec| spec.name.as_str().starts_with("mcp__toy__")), "{names:?}");
    host.drain(LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_over_the_concurrency_of_a_server_wait() {
    let world = World::new().await;
    let host = world.serve(json!({"toy": world.toy(MODERN, &json!({"concurrency": 1}))})).await;
    let mut first = world.begin("mcp__toy__work", json!({})).await;
    first.progress().await;
    let mut second = world.begin("mcp__toy__echo", json!({"text": "at last"})).await;
    assert_eq!(first.progress().await, "half of it");
    first.cancel().await;
    assert_eq!(first.answer().await.into_unknown(), "cancelled");
    // Both calls have the same id, so the cancel reaches both; a waiting call is not begun.
    let answer = second.answer().await;
    assert!(answer.text == "at last" || answer.text == "cancelled", "{answer:?}");
    assert_eq!(world.call("mcp__toy__echo", json!({"text": "free again"})).await.into_result(), "free again");
    host.drain(LONG).await;
}
