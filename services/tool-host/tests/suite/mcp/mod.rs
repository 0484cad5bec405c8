//! MCP servers as callers of their tools see them, on a real nats-server.

mod diary;
mod http;
mod life;
mod real;
mod stdio;
mod toy;
mod world;

use std::time::{Duration, Instant};

use contract::tool::{ApprovalPolicy, EffectClass};
use serde_json::{Value, json};

use stdio::{LEGACY, MODERN, RAW, RICH};
use world::{World, is_alive, wait_for};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_of_a_server_are_in_the_catalogue_as_configured() {
    let world = World::new().await;
    let config = json!({
        "deny": ["fail"], "effects": {"work": "idempotent"}, "approval": {"huge": "always"}, "trust_annotations": true,
        "timeout": 30, "max_output": 5_000,
    });
    let host = world.serve(json!({"toy": world.toy(MODERN, &config)})).await;
    let names: Vec<String> = world.catalogue().await.iter().map(|spec| spec.name.to_string()).collect();
    let (long, rest): (Vec<&String>, Vec<&String>) = names.iter().partition(|name| name.contains("xxxx"));
    let plain = ["breed", "change", "die", "echo", "env", "huge", "meta", "old", "oops", "wei_rd_n_me", "work"];
    assert_eq!(rest, plain.map(|tool| format!("mcp__toy__{tool}")).iter().collect::<Vec<_>>());
    assert_eq!(long.iter().map(|name| name.len()).collect::<Vec<_>>(), [64]);
    let echo = world.spec("mcp__toy__echo").await.unwrap();
    assert_eq!((echo.effect, echo.approval, echo.timeout_ms), (EffectClass::Pure, ApprovalPolicy::Never, Some(30_000)));
    assert_eq!(
        (echo.max_output, echo.version.as_str(), echo.description.as_str()),
        (Some(5_000), "2.3.4", toy::BEFORE)
    );
    assert!(echo.parameters.get().contains(r#""required":["text"]"#));
    assert_eq!(world.spec("mcp__toy__work").await.unwrap().effect, EffectClass::Idempotent);
    assert_eq!(world.spec("mcp__toy__die").await.unwrap().effect, EffectClass::AtMostOnce);
    assert_eq!(world.spec("mcp__toy__huge").await.unwrap().approval, ApprovalPolicy::Always);
    assert_eq!(world.call("mcp__toy__wei_rd_n_me", json!({})).await.into_result(), "this is wei rd/näme");
    assert!(world.call(long[0], json!({})).await.into_result().starts_with("this is xxx"));
    host.drain(world::LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_call_with_any_answer_is_reported() {
    for role in [MODERN, LEGACY] {
        let world = World::new().await;
        let host = world.serve(json!({"toy": world.toy(role, &json!({}))})).await;
        // An older server is connected at the second try.
        assert_eq!(world.call_when_up("mcp__toy__echo", &json!({"text": "hello"})).await.into_result(), "hello");
        assert_eq!(world.call("mcp__toy__fail", json!({})).await.into_error(), "no such city");
        assert_eq!(world.call("mcp__toy__oops", json!({})).await.into_error(), "that cannot be (-32602)");
        assert!(world.call("mcp__toy__echo", json!([1])).await.into_error().starts_with("the arguments do not fit"));
        let meta: Value = serde_json::from_str(&world.call("mcp__toy__meta", json!({})).await.into_result()).unwrap();
        assert_eq!(meta["ailoop/call"], "s1-c1-1-1");
        assert_eq!(meta["traceparent"], "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        let cut = world.call("mcp__toy__huge", json!({"bytes": 1_000_000})).await.into_result();
        assert!(cut.len() <= 64 << 10 && cut.contains("of 1000000 bytes left out"), "{}", cut.len());
        // The call ran, and after a plain error a model would call again.
        let huge = world.call("mcp__toy__huge", json!({"bytes": 20_000_000})).await.into_unknown();
        assert!(huge.starts_with("the call was answered, but the answer of 2000"), "{huge}");
        assert_eq!(world.call("mcp__toy__echo", json!({"text": "still here"})).await.into_result(), "still here");
        host.drain(world::LONG).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_call_reports_progress_and_is_cancelled_at_the_server() {
    for role in [MODERN, LEGACY] {
        let world = World::new().await;
        let host = world.serve(json!({"toy": world.toy(role, &json!({}))})).await;
        world.call_when_up("mcp__toy__echo", &json!({"text": ""})).await.into_result();
        let mut call = world.begin("mcp__toy__work", json!({})).await;
        assert_eq!(call.progress().await, "half of it");
        call.cancel().await;
        assert_eq!(call.answer().await.into_unknown(), "cancelled");
        world.wait_for_note("cancelled", 1).await;
        // Only that call was cancelled.
        assert_eq!(world.call("mcp__toy__echo", json!({"text": "hello"})).await.into_result(), "hello");
        host.drain(world::LONG).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mcp_call_with_progress_outlives_its_timeout() {
    let world = World::new().await;
    let host = world.serve(json!({"toy": world.toy(MODERN, &json!({"timeout": 1}))})).await;
    let mut call = world.begin("mcp__toy__work", json!({})).await;
    let began = Instant::now();
    // A call is given up two seconds after its timeout.
    while began.elapsed() < Duration::from_millis(3_500) {
        // The receipt comes half a second after the beginning, with an empty text.
        assert!(["half of it", ""].contains(&call.progress().await.as_str()));
    }
    call.cancel().await;
    assert_eq!(call.answer().await.into_unknown(), "cancelled");
    host.drain(world::LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_process_gets_no_other_environment_variables() {
    let world = World::new().await;
    let config =
        json!({"env": {"GIVEN": "a value", "mixedCase": "too"}, "env_from": ["CARGO_MANIFEST_DIR", "NOT_THERE"]});
    let host = world.serve(json!({"toy": world.toy(MODERN, &config)})).await;
    let environment: Value = serde_json::from_str(&world.call("mcp__toy__env", json!({})).await.into_result()).unwrap();
    assert_eq!((&environment["GIVEN"], &environment["mixedCase"]), (&json!("a value"), &json!("too")));
    assert_eq!(environment["CARGO_MANIFEST_DIR"], env!("CARGO_MANIFEST_DIR"));
    let may = ["PATH", "HOME", "LANG", "GIVEN", "mixedCase", "CARGO_MANIFEST_DIR", stdio::ROLE, stdio::DIARY];
    let names: Vec<&String> = environment.as_object().unwrap().keys().collect();
    assert!(names.iter().all(|name| may.contains(&name.as_str())), "{names:?}");
    assert!(configuration::env("CARGO_PKG_NAME").is_some(), "this process has more");
    host.drain(world::LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_list_with_malformed_tools_valid_ones_are_served() {
    let world = World::new().await;
    let host = world.serve(json!({"raw": world.toy(RAW, &json!({}))})).await;
    let names: Vec<String> = world.catalogue().await.iter().map(|spec| spec.name.to_string()).collect();
    assert_eq!(names, ["mcp__raw__good"]);
    let answer = world.call("mcp__raw__good", json!({})).await.into_result();
    assert_eq!(answer, "[content of an unknown kind]\ngood");
    host.drain(world::LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modern_server_changes_its_tools_catalogue_follows() {
    change_of_tools_is_followed(MODERN).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn legacy_server_changes_its_tools_catalogue_follows() {
    change_of_tools_is_followed(LEGACY).await;
}

async fn change_of_tools_is_followed(role: &str) {
    let world = World::new().await;
    let host = world.serve(json!({"toy": world.toy(role, &json!({}))})).await;
    assert_eq!(world.call_when_up("mcp__toy__old", &json!({"text": "a"})).await.into_result(), "a");
    // A running call outlives a change, even of its own tool.
    let mut call = world.begin("mcp__toy__work", json!({})).await;
    call.progress().await;
    world.call("mcp__toy__change", json!({})).await.into_result();
    let wait_for_description = async |tool: &str, text: &str| {
        wait_for(async || world.spec(tool).await.filter(|spec| spec.description == text).map(|_| ())).await;
    };
    wait_for_description("mcp__toy__new", "Comes or goes.").await;
    wait_for_description("mcp__toy__echo", toy::AFTER).await;
    assert_eq!(world.call("mcp__toy__new", json!({"text": "b"})).await.into_result(), "b");
    wait_for(async || world.spec("mcp__toy__old").await.is_none().then_some(())).await;
    call.progress().await;
    call.cancel().await;
    assert_eq!(call.answer().await.into_unknown(), "cancelled");
    host.drain(world::LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_ends_its_servers_and_what_they_started_end() {
    let world = World::new().await;
    let host = world.serve(json!({"toy": world.toy(MODERN, &json!({}))})).await;
    let child = world.call("mcp__toy__breed", json!({})).await.into_result();
    assert!(is_alive(&child));
    host.drain(world::LONG).await;
    wait_for(async || (!is_alive(&child)).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_that_needs_a_task_or_costs_too_much_is_withheld_and_resources_are_read() {
    let world = World::new().await;
    let host = world.serve(json!({"rich": world.toy(RICH, &json!({}))})).await;
    wait_for(async || world.spec("mcp__rich__count").await).await;
    let names: Vec<String> = world.catalogue().await.iter().map(|spec| spec.name.to_string()).collect();
    assert_eq!(names, ["mcp__rich__count", "mcp__rich__read_resource"]);
    assert_eq!(world.spec("mcp__rich__read_resource").await.unwrap().effect, EffectClass::Pure);
    let page = world.call("mcp__rich__read_resource", json!({"uri": "toy://page"})).await.into_result();
    assert_eq!(page, "[resource toy://page]\na page");
    let none = world.call("mcp__rich__read_resource", json!({"uri": "toy://none"})).await.into_error();
    assert_eq!(none, "no such resource (-32002)");
    host.drain(world::LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn structured_result_against_its_schema_is_an_error_with_the_place() {
    let world = World::new().await;
    let config = json!({"effects": {"count": "pure"}});
    let host = world.serve(json!({"rich": world.toy(RICH, &config)})).await;
    assert_eq!(world.call_when_up("mcp__rich__count", &json!({"n": 3})).await.into_result(), "3");
    let error = world.call("mcp__rich__count", json!({"n": "three"})).await.into_error();
    assert!(error.contains("outputSchema") && error.contains("at /n: \"three\" is not of type"), "{error}");
    host.drain(world::LONG).await;
}
