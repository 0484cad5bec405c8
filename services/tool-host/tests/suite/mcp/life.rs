//! Servers that die, and servers that never were.

use serde_json::json;

use crate::mcp::stdio::MODERN;
use crate::mcp::world::{LONG, World, lives, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_is_started_again_and_its_calls_end_honestly() {
    let world = World::new().await;
    let config = json!({"effects": {"echo": "pure", "work": "pure"}});
    let served = world.serve(json!({"toy": world.toy(MODERN, &config)})).await;
    let child = world.call("mcp__toy__breed", json!({})).await.good();
    let mut pure = world.begin("mcp__toy__work", json!({})).await;
    pure.progress().await;
    // The one that killed it must not run twice: nobody knows what it did.
    let killer = world.call("mcp__toy__die", json!({})).await;
    assert!(killer.unknown && killer.error, "{killer:?}");
    assert!(killer.text.contains("nobody knows whether it took effect"), "{killer:?}");
    assert!(pure.answer().await.bad().ends_with("it may be called again"));
    assert_eq!(world.call_when_up("mcp__toy__echo", &json!({"text": "again"})).await.good(), "again");
    assert_eq!((world.diary.count("starts"), world.diary.count("dies")), (2, 1));
    until(async || (!lives(&child)).then_some(())).await;
    served.drain(LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hosts_with_the_same_server_share_its_calls() {
    let world = World::new().await;
    let first = world.serve(json!({"toy": world.toy(MODERN, &json!({}))})).await;
    let second = world.serve(json!({"toy": world.toy(MODERN, &json!({}))})).await;
    assert_eq!(world.diary.count("starts"), 2);
    // While one is down the other one answers: nobody meets nobody.
    first.drain(LONG).await;
    for number in 0..20 {
        let text = format!("call {number}");
        assert_eq!(world.call("mcp__toy__echo", json!({"text": text})).await.good(), text);
    }
    second.drain(LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_be_started_holds_up_nobody() {
    let world = World::new().await;
    let servers = json!({
        "missing": {"command": "there-is-no-such-program"},
        "mute": {"command": "false"},
        "toy": world.toy(MODERN, &json!({})),
    });
    let served = world.serve(servers).await;
    assert_eq!(world.call("mcp__toy__echo", json!({"text": "hello"})).await.good(), "hello");
    let names = world.catalogue().await;
    assert!(names.iter().all(|spec| spec.name.as_str().starts_with("mcp__toy__")), "{names:?}");
    served.drain(LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_calls_run_at_the_same_time_than_the_server_wants() {
    let world = World::new().await;
    let served = world.serve(json!({"toy": world.toy(MODERN, &json!({"concurrency": 1}))})).await;
    let mut first = world.begin("mcp__toy__work", json!({})).await;
    first.progress().await;
    let mut second = world.begin("mcp__toy__echo", json!({"text": "at last"})).await;
    assert_eq!(first.progress().await, "half of it");
    first.cancel().await;
    assert_eq!(first.answer().await.doubtful(), "cancelled");
    // Both have the same id, so that the cancel names both; what was not begun is not begun.
    let answer = second.answer().await;
    assert!(answer.text == "at last" || answer.text == "cancelled", "{answer:?}");
    assert_eq!(world.call("mcp__toy__echo", json!({"text": "free again"})).await.good(), "free again");
    served.drain(LONG).await;
}
