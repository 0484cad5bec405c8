//! Tools are added to the catalogue when they answer, and removed when they do not.

use std::time::Duration;

use bus::{Bus, SubscriptionEvent};
use bus_memory::MemoryServer;
use bytes::Bytes;
use contract::commit::Phase;
use contract::subject::{self, Subject};
use contract::tool::{ApprovalPolicy, EffectClass, Outcome};
use contract::{ErrorCode, TenantId, ToolName};
use futures::StreamExt;
use futures::future::AbortHandle;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::executor::world::{World, call};

/// Answers queries of the services protocol as one tool, until it is aborted.
pub(crate) async fn describe_tool(
    server: &MemoryServer,
    schema: &str,
) -> (AbortHandle, impl Future<Output = ()> + use<>) {
    let answer = info("1.0.0", &json!({"ailoop.tool": "act", "ailoop.parameters": schema}));
    answer_queries(server, &[subject::services_info(), address()], vec![answer]).await
}

/// Answers each query at these addresses with all of these infos, until it is aborted.
async fn answer_queries(
    server: &MemoryServer,
    addresses: &[Subject],
    infos: Vec<Bytes>,
) -> (AbortHandle, impl Future<Output = ()> + use<>) {
    let (bus, mut subscriptions) = (server.bus(), Vec::new());
    for address in addresses {
        subscriptions.push(bus.listen(address, None).await.unwrap());
    }
    let mut queries = futures::stream::select_all(subscriptions);
    let (answering, handle) = futures::future::abortable(async move {
        while let Some(event) = queries.next().await {
            let SubscriptionEvent::Message(query) = event else { continue };
            let to = query.reply.unwrap();
            for info in &infos {
                bus.transport().reply(&to, Vec::new(), info.clone()).await.unwrap();
            }
        }
    });
    (handle, async move { answering.await.unwrap_or_default() })
}

/// The own address of the tool `act`.
fn address() -> Subject {
    subject::service_info(&ToolName::new("act").unwrap())
}

/// Builds the description of the tool `act`.
fn info(version: &str, metadata: &Value) -> Bytes {
    info_of("default", version, metadata)
}

fn info_of(tenant: &str, version: &str, metadata: &Value) -> Bytes {
    let info = json!({"type": "io.nats.micro.v1.info_response", "name": "act", "id": "1", "version": version,
        "description": null, "metadata": {}, "endpoints": [{"name": "act", "subject": format!("ai_tool.{tenant}.act"),
        "queue_group": "tools", "metadata": metadata}]});
    Bytes::from(info.to_string())
}

async fn names(bus: &Bus, world: &World) -> Vec<String> {
    let tools = bus.tools(&world.key.tenant).await.unwrap();
    tools.into_iter().map(|tool| tool.name.to_string()).collect()
}

pub(crate) async fn wait_for(world: &World, wanted: &[&str]) -> Duration {
    let began = Instant::now();
    world.wait_for(async || (names(&world.bus, world).await == wanted).then_some(())).await;
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn tool_is_found_within_two_seconds_and_removed_when_gone() {
    let world = World::new().await;
    let (executor, _life) = world.executor("a");
    world.wait_for(async || executor.readiness().is_ready().then_some(())).await;
    let (describing, description) = describe_tool(&world.server, "{\"type\":\"object\"}").await;
    let ((), found) = futures::join!(description, async {
        let found = wait_for(&world, &["act"]).await;
        // Long enough for an entry that is not refreshed to expire, and for the executor to remove a silent tool.
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!(names(&world.bus, &world).await, ["act"]);
        describing.abort();
        found
    });
    assert!(found < Duration::from_secs(2), "{found:?}");
    let gone = wait_for(&world, &[]).await;
    // A client reconnects within two pings of 5 s: its tool stays known that long.
    assert!((Duration::from_secs(11)..Duration::from_secs(15)).contains(&gone), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn tool_announced_is_found_at_once_and_invalid_never() {
    let world = World::new().await;
    let (executor, _life) = world.executor("a");
    world.wait_for(async || executor.readiness().is_ready().then_some(())).await;
    let (describing, description) = describe_tool(&world.server, "{\"type\":\"object\"}").await;
    let ((), found) = futures::join!(description, async {
        world.bus.transport().publish(&subject::tool_announce(), Vec::new(), Bytes::new()).await.unwrap();
        let found = wait_for(&world, &["act"]).await;
        describing.abort();
        found
    });
    assert!(found < Duration::from_millis(500), "{found:?}");

    let world = World::new().await;
    let _executor = world.executor("a");
    let (describing, description) = describe_tool(&world.server, "[]").await;
    futures::join!(description, async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(names(&world.bus, &world).await.is_empty());
        describing.abort();
    });
}

#[tokio::test(start_paused = true)]
async fn arguments_that_do_not_fit_the_schema_are_an_error_and_not_sent() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    let _executor = world.executor("a");
    let (describing, description) = describe_tool(&world.server, r#"{"properties":{"n":{"type":"string"}}}"#).await;
    let ((), result) = futures::join!(description, async {
        wait_for(&world, &["act"]).await;
        world.publish(&world.item(EffectClass::Pure)).await;
        let result = world.result().await;
        describing.abort();
        result
    });
    assert_eq!((result.outcome, result.code), (Outcome::Error, Some(ErrorCode::InvalidArguments)));
    assert!(result.content.ends_with("at /n: 1 is not of type \"string\""), "{}", result.content);
    assert!(tool.has_no_call().await);
}

#[tokio::test(start_paused = true)]
async fn tool_without_replica_is_waited_for() {
    // In milliseconds: when the tool is back, and when its call is given up, with and without a loss of the connection.
    for (lost, back, given_up) in
        [(true, Some(3_000), None), (true, None, Some(5_000)), (false, Some(2_500), None), (false, None, Some(3_000))]
    {
        let world = World::new().await;
        let (executor, _life) = world.executor("a");
        world.wait_for(async || executor.readiness().is_ready().then_some(())).await;
        let (describing, description) = describe_tool(&world.server, "{\"type\":\"object\"}").await;
        futures::join!(description, async {
            wait_for(&world, &["act"]).await;
            if lost {
                world.server.restart();
            }
            // The tool is in the catalogue, and has no replica.
            let began = Instant::now();
            world.publish(&world.item(EffectClass::AtMostOnce)).await;
            if let Some(pause) = back {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                let mut tool = world.tool().await;
                let request = tool.next_call().await;
                tool.answer(&request, &[], b"done").await;
                assert_eq!(world.result().await.outcome, Outcome::Ok);
            }
            if let Some(given_up) = given_up {
                let result = world.result().await;
                assert_eq!((result.outcome, result.code), (Outcome::Error, Some(ErrorCode::NoToolAvailable)));
                let took = began.elapsed().as_millis();
                assert!((given_up..given_up + 400).contains(&took), "{took} ms");
            }
            describing.abort();
        });
    }
}

#[tokio::test(start_paused = true)]
async fn call_waiting_for_its_tool_does_not_begin_after_a_stop_or_in_a_pause() {
    for pause in [false, true] {
        let mut world = World::new().await;
        let (executor, _life) = world.executor("a");
        world.wait_for(async || executor.readiness().is_ready().then_some(())).await;
        let (describing, description) = describe_tool(&world.server, "{\"type\":\"object\"}").await;
        futures::join!(description, async {
            wait_for(&world, &["act"]).await;
            world.server.restart();
            let mut item = world.item(EffectClass::AtMostOnce);
            item.meta.deadline = world.server.now().after(Duration::from_hours(10));
            world.publish(&item).await;
            tokio::time::sleep(Duration::from_millis(450)).await;
            if pause {
                world.commit(Phase::Paused, &[&call().to_string()]).await;
            } else {
                world.bus.publish_cancel(&world.key, &call()).await.unwrap();
            }
            let mut tool = world.tool().await;
            if pause {
                assert!(tool.has_no_call().await);
                world.commit(Phase::Running, &[&call().to_string()]).await;
                let request = tool.next_call().await;
                tool.answer(&request, &[], b"done").await;
                assert_eq!(world.result().await.outcome, Outcome::Ok);
            } else {
                let result = world.result().await;
                assert_eq!(
                    (result.outcome, result.content.as_str()),
                    (Outcome::Cancelled, "cancelled; it was not called")
                );
                assert!(tool.has_no_call().await);
            }
            describing.abort();
        });
    }
}

#[tokio::test(start_paused = true)]
async fn tool_of_many_tenants_is_found_for_each_with_every_replica() {
    let world = World::new().await;
    let metadata = json!({"ailoop.tool": "act"});
    let mut infos: Vec<_> = (0..40).map(|tenant| info_of(&format!("t{tenant}"), "1.0.0", &metadata)).collect();
    // Twenty replicas of one more tenant, the newest of which needs approval.
    infos.extend((0..20).map(|_| info("1.0.0", &metadata)));
    infos.push(info("2.0.0", &json!({"ailoop.tool": "act", "ailoop.approval": "always"})));
    let (describing, description) = answer_queries(&world.server, &[subject::services_info(), address()], infos).await;
    futures::join!(description, async {
        let (_executor, _life) = world.executor("a");
        for tenant in (0..40).map(|tenant| TenantId::new(&format!("t{tenant}")).unwrap()) {
            world.wait_for(async || (world.bus.tools(&tenant).await.unwrap().len() == 1).then_some(())).await;
        }
        let tools = world.bus.tools(&world.key.tenant).await.unwrap();
        assert_eq!((tools[0].version.as_str(), tools[0].approval), ("2.0.0", ApprovalPolicy::Always));
        describing.abort();
    });
}

#[tokio::test(start_paused = true)]
async fn tool_with_silent_address_stays_while_it_answers_broadcasts() {
    let world = World::new().await;
    let (executor, _life) = world.executor("a");
    world.wait_for(async || executor.readiness().is_ready().then_some(())).await;
    let (describing, description) = describe_tool(&world.server, "{\"type\":\"object\"}").await;
    futures::join!(description, async {
        wait_for(&world, &["act"]).await;
        describing.abort();
    });
    // It answers broadcasts only: it is too busy, or the server permits no query at its own address.
    let _silent = world.server.bus().listen(&address(), None).await.unwrap();
    let answer = info("1.0.0", &json!({"ailoop.tool": "act", "ailoop.parameters": "{\"type\":\"object\"}"}));
    let (describing, description) = answer_queries(&world.server, &[subject::services_info()], vec![answer]).await;
    futures::join!(description, async {
        for _ in 0..12 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(names(&world.bus, &world).await, ["act"]);
        }
        describing.abort();
    });
}

#[tokio::test(start_paused = true)]
async fn description_from_another_user_is_not_believed() {
    let world = World::new().await;
    let (executor, _life) = world.executor("a");
    world.wait_for(async || executor.readiness().is_ready().then_some(())).await;
    // The user of another tool receives broadcasts, and no query at this tool's own address.
    let metadata = json!({"ailoop.tool": "act", "ailoop.approval": "never", "ailoop.effect": "pure"});
    let (forger, forged_answers) =
        answer_queries(&world.server, &[subject::services_info()], vec![info("99.0.0", &metadata)]).await;
    let list_tools = async || world.bus.tools(&world.key.tenant).await.unwrap();
    futures::join!(forged_answers, async {
        // The forged description alone never counts.
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(list_tools().await, []);
        let (describing, description) = describe_tool(&world.server, "{\"type\":\"object\"}").await;
        futures::join!(description, async {
            assert!(wait_for(&world, &["act"]).await <= Duration::from_secs(2));
            tokio::time::sleep(Duration::from_secs(10)).await;
            let tools = list_tools().await;
            assert_eq!((tools[0].version.as_str(), tools[0].effect), ("1.0.0", EffectClass::AtMostOnce));
            describing.abort();
        });
        forger.abort();
    });
}

#[tokio::test(start_paused = true)]
async fn call_right_after_a_start_waits_for_the_catalogue_and_its_tool() {
    // Whether the tool describes itself, and when it starts, in milliseconds after the executor.
    for (is_described, there_after) in [(true, 300), (true, 3_000), (false, 3_000)] {
        let world = World::new().await;
        let (_executor, _life) = world.executor("a");
        world.publish(&world.item(EffectClass::AtMostOnce)).await;
        tokio::time::sleep(Duration::from_millis(there_after)).await;
        let mut tool = world.tool().await;
        let (describing, description) = describe_tool(&world.server, "{\"type\":\"object\"}").await;
        if !is_described {
            describing.abort();
        }
        futures::join!(description, async {
            let request = tool.next_call().await;
            tool.answer(&request, &[], b"done").await;
            let result = world.result().await;
            assert_eq!(result.outcome, Outcome::Ok, "{there_after} ms: {}", result.content);
            describing.abort();
        });
    }
}

/// A schema whose validation takes 2^30 steps.
fn doubling_schema() -> String {
    let two =
        |level: u32| json!([{"$ref": format!("#/$defs/d{}", level + 1)}, {"$ref": format!("#/$defs/d{}", level + 1)}]);
    let mut definitions: serde_json::Map<String, Value> =
        (0..30).map(|level| (format!("d{level}"), json!({"allOf": two(level)}))).collect();
    definitions.insert("d30".to_owned(), json!({"required": ["x"]}));
    json!({"$ref": "#/$defs/d0", "$defs": definitions}).to_string()
}

#[tokio::test(start_paused = true)]
async fn tool_whose_schema_costs_too_much_is_not_listed_and_blocks_no_call() {
    let world = World::new().await;
    let mut tool = world.tool().await;
    // An older executor may have added it to the catalogue.
    let spec = contract::tool::ToolSpec {
        name: ToolName::new("act").unwrap(),
        description: String::new(),
        parameters: contract::Json::parse(&doubling_schema()).unwrap(),
        effect: EffectClass::Pure,
        approval: ApprovalPolicy::Never,
        timeout_ms: None,
        max_output: None,
        instructions: None,
        version: String::new(),
    };
    world.bus.put_tool(&world.key.tenant, &spec).await.unwrap();
    let (_executor, _life) = world.executor("a");
    let (describing, description) = describe_tool(&world.server, &doubling_schema()).await;
    futures::join!(description, async {
        wait_for(&world, &[]).await;
        world.publish(&world.item(EffectClass::Pure)).await;
        let request = tool.next_call().await;
        tool.answer(&request, &[], b"done").await;
        assert_eq!(world.result().await.outcome, Outcome::Ok);
        describing.abort();
    });
}

#[tokio::test(start_paused = true)]
async fn arguments_whose_check_never_ended_are_not_checked_again() {
    for lost in [false, true] {
        let world = World::new().await;
        let mut tool = world.tool().await;
        let (_executor, _life) = world.executor("a");
        let (describing, description) = describe_tool(&world.server, r#"{"type":"object"}"#).await;
        futures::join!(description, async {
            wait_for(&world, &["act"]).await;
            if lost {
                // The mark that an executor leaves that is lost during a check.
                let claimed = world.bus.claim(&world.key, &call().call, &["0", "check-1"], "another").await;
                assert_eq!(claimed.unwrap(), bus::Claim::Mine);
            }
            let mut item = world.item(EffectClass::Pure);
            item.arguments = contract::Json::of(&json!({"text": "x".repeat(100_000)}));
            world.publish(&item).await;
            if lost {
                let result = world.result().await;
                assert_eq!((result.outcome, result.code), (Outcome::Error, Some(ErrorCode::Poison)));
                assert!(result.content.contains("was not called"), "{}", result.content);
                assert!(tool.has_no_call().await);
            } else {
                let request = tool.next_call().await;
                tool.answer(&request, &[], b"done").await;
                assert_eq!(world.result().await.outcome, Outcome::Ok);
            }
            describing.abort();
        });
    }
}
