//! Tools come into the catalogue when they answer, and leave it when they do not.

use std::time::Duration;

use bus::{Bus, MemoryServer, SubscriptionEvent};
use bytes::Bytes;
use contract::commit::Phase;
use contract::subject::{self, Subject};
use contract::tool::{Approval, EffectClass, Outcome};
use contract::{ErrorCode, TenantId, ToolName};
use futures::StreamExt;
use futures::future::AbortHandle;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::executor::world::{World, call};

/// Answers questions of the services protocol as one tool, until it is aborted.
pub(crate) async fn play(server: &MemoryServer, schema: &str) -> (AbortHandle, impl Future<Output = ()> + use<>) {
    let said = info("1.0.0", &json!({"ailoop.tool": "act", "ailoop.parameters": schema}));
    say(server, &[subject::services_info(), address()], vec![said]).await
}

/// Answers all of this to whoever asks at these addresses, until it is aborted.
async fn say(
    server: &MemoryServer,
    addresses: &[Subject],
    infos: Vec<Bytes>,
) -> (AbortHandle, impl Future<Output = ()> + use<>) {
    let (bus, mut asked) = (server.bus(), Vec::new());
    for address in addresses {
        asked.push(bus.listen(address, None).await.unwrap());
    }
    let mut questions = futures::stream::select_all(asked);
    let (saying, handle) = futures::future::abortable(async move {
        while let Some(heard) = questions.next().await {
            let SubscriptionEvent::Message(question) = heard else { continue };
            let to = question.reply.unwrap();
            for info in &infos {
                bus.transport().reply(&to, Vec::new(), info.clone()).await.unwrap();
            }
        }
    });
    (handle, async move { saying.await.unwrap_or_default() })
}

/// Where the tool `act` is asked itself.
fn address() -> Subject {
    subject::service_info(&ToolName::new("act").unwrap())
}

/// What a service says of the tool `act`.
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

pub(crate) async fn until(world: &World, wanted: &[&str]) -> Duration {
    let began = Instant::now();
    world.until(async || (names(&world.bus, world).await == wanted).then_some(())).await;
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_tool_is_found_within_two_seconds_and_forgotten_when_it_is_gone() {
    let world = World::new().await;
    let (executor, _life) = world.executor("a").await;
    world.until(async || executor.readiness().is_ready().then_some(())).await;
    let (playing, tool) = play(&world.server, "{\"type\":\"object\"}").await;
    let ((), found) = futures::join!(tool, async {
        let found = until(&world, &["act"]).await;
        // Long enough for the entry to expire if nobody refreshed it, and for the executor's patience to end.
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!(names(&world.bus, &world).await, ["act"]);
        playing.abort();
        found
    });
    assert!(found < Duration::from_secs(2), "{found:?}");
    let gone = until(&world, &[]).await;
    // A client finds a new server within two pings of 5 s: its tool stays known that long.
    assert!((Duration::from_secs(11)..Duration::from_secs(15)).contains(&gone), "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn an_announced_tool_is_found_at_once_and_a_bad_one_never() {
    let world = World::new().await;
    let (executor, _life) = world.executor("a").await;
    world.until(async || executor.readiness().is_ready().then_some(())).await;
    let (playing, tool) = play(&world.server, "{\"type\":\"object\"}").await;
    let ((), found) = futures::join!(tool, async {
        world.bus.transport().publish(&subject::tool_announce(), Vec::new(), Bytes::new()).await.unwrap();
        let found = until(&world, &["act"]).await;
        playing.abort();
        found
    });
    assert!(found < Duration::from_millis(500), "{found:?}");

    let world = World::new().await;
    let _executor = world.executor("a").await;
    let (playing, tool) = play(&world.server, "[]").await;
    futures::join!(tool, async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(names(&world.bus, &world).await.is_empty());
        playing.abort();
    });
}

#[tokio::test(start_paused = true)]
async fn arguments_that_do_not_fit_the_schema_reach_the_model_and_not_the_tool() {
    let world = World::new().await;
    let mut asked = world.tool().await;
    let _executor = world.executor("a").await;
    let (playing, tool) = play(&world.server, r#"{"properties":{"n":{"type":"string"}}}"#).await;
    let ((), result) = futures::join!(tool, async {
        until(&world, &["act"]).await;
        world.publish(&world.item(EffectClass::Pure)).await;
        let result = world.result().await;
        playing.abort();
        result
    });
    assert_eq!((result.outcome, result.code), (Outcome::Error, Some(ErrorCode::InvalidArguments)));
    assert!(result.content.ends_with("at /n: 1 is not of type \"string\""), "{}", result.content);
    assert!(asked.is_left_alone().await);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_nobody_serves_just_now_is_waited_for() {
    // In milliseconds: when it is back after the loss of the connection, and when its call is given up.
    for (lost, back, given_up) in [(true, Some(3_000), None), (true, None, Some(5_000)), (false, None, Some(600))] {
        let world = World::new().await;
        let (executor, _life) = world.executor("a").await;
        world.until(async || executor.readiness().is_ready().then_some(())).await;
        let (playing, described) = play(&world.server, "{\"type\":\"object\"}").await;
        futures::join!(described, async {
            until(&world, &["act"]).await;
            if lost {
                world.server.restart();
            }
            // In the catalogue, and nobody listens to its calls.
            let began = Instant::now();
            world.publish(&world.item(EffectClass::AtMostOnce)).await;
            if let Some(pause) = back {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                let mut tool = world.tool().await;
                let request = tool.asked().await;
                tool.answer(&request, &[], b"done").await;
                assert_eq!(world.result().await.outcome, Outcome::Ok);
            }
            if let Some(given_up) = given_up {
                let result = world.result().await;
                assert_eq!((result.outcome, result.code), (Outcome::Error, Some(ErrorCode::NoToolAvailable)));
                let took = began.elapsed().as_millis();
                assert!((given_up..given_up + 400).contains(&took), "{took} ms");
            }
            playing.abort();
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_tool_does_not_begin_after_a_stop_or_in_a_pause() {
    for pause in [false, true] {
        let mut world = World::new().await;
        let (executor, _life) = world.executor("a").await;
        world.until(async || executor.readiness().is_ready().then_some(())).await;
        let (playing, described) = play(&world.server, "{\"type\":\"object\"}").await;
        futures::join!(described, async {
            until(&world, &["act"]).await;
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
                assert!(tool.is_left_alone().await);
                world.commit(Phase::Running, &[&call().to_string()]).await;
                let request = tool.asked().await;
                tool.answer(&request, &[], b"done").await;
                assert_eq!(world.result().await.outcome, Outcome::Ok);
            } else {
                let result = world.result().await;
                assert_eq!(
                    (result.outcome, result.content.as_str()),
                    (Outcome::Cancelled, "cancelled; it was not called")
                );
                assert!(tool.is_left_alone().await);
            }
            playing.abort();
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_of_many_tenants_is_found_for_each_and_every_replica_is_heard() {
    let world = World::new().await;
    let said = json!({"ailoop.tool": "act"});
    let mut infos: Vec<_> = (0..40).map(|tenant| info_of(&format!("t{tenant}"), "1.0.0", &said)).collect();
    // Twenty replicas of one more, and the newest of them wants somebody to be asked.
    infos.extend((0..20).map(|_| info("1.0.0", &said)));
    infos.push(info("2.0.0", &json!({"ailoop.tool": "act", "ailoop.approval": "always"})));
    let (playing, described) = say(&world.server, &[subject::services_info(), address()], infos).await;
    futures::join!(described, async {
        let (_executor, _life) = world.executor("a").await;
        for tenant in (0..40).map(|tenant| TenantId::new(&format!("t{tenant}")).unwrap()) {
            world.until(async || (world.bus.tools(&tenant).await.unwrap().len() == 1).then_some(())).await;
        }
        let tools = world.bus.tools(&world.key.tenant).await.unwrap();
        assert_eq!((tools[0].version.as_str(), tools[0].approval), ("2.0.0", Approval::Always));
        playing.abort();
    });
}

#[tokio::test(start_paused = true)]
async fn a_tool_whose_address_is_silent_stays_as_long_as_it_is_heard() {
    let world = World::new().await;
    let (executor, _life) = world.executor("a").await;
    world.until(async || executor.readiness().is_ready().then_some(())).await;
    let (playing, described) = play(&world.server, "{\"type\":\"object\"}").await;
    futures::join!(described, async {
        until(&world, &["act"]).await;
        playing.abort();
    });
    // It answers what everybody hears, and not at its address: too busy, or nobody may ask there.
    let _silent = world.server.bus().listen(&address(), None).await.unwrap();
    let told = info("1.0.0", &json!({"ailoop.tool": "act", "ailoop.parameters": "{\"type\":\"object\"}"}));
    let (playing, described) = say(&world.server, &[subject::services_info()], vec![told]).await;
    futures::join!(described, async {
        for _ in 0..12 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(names(&world.bus, &world).await, ["act"]);
        }
        playing.abort();
    });
}

#[tokio::test(start_paused = true)]
async fn nobody_else_says_what_a_tool_is() {
    let world = World::new().await;
    let (executor, _life) = world.executor("a").await;
    world.until(async || executor.readiness().is_ready().then_some(())).await;
    // Another tool's user: he hears what everybody hears, and not what is asked at this one's own address.
    let forged = json!({"ailoop.tool": "act", "ailoop.approval": "never", "ailoop.effect": "pure"});
    let (liar, lying) = say(&world.server, &[subject::services_info()], vec![info("99.0.0", &forged)]).await;
    let stands = async || world.bus.tools(&world.key.tenant).await.unwrap();
    futures::join!(lying, async {
        // Alone it is not believed, however long it says so.
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(stands().await, []);
        let (playing, described) = play(&world.server, "{\"type\":\"object\"}").await;
        futures::join!(described, async {
            assert!(until(&world, &["act"]).await <= Duration::from_secs(2));
            tokio::time::sleep(Duration::from_secs(10)).await;
            let tools = stands().await;
            assert_eq!((tools[0].version.as_str(), tools[0].effect), ("1.0.0", EffectClass::AtMostOnce));
            playing.abort();
        });
        liar.abort();
    });
}

#[tokio::test(start_paused = true)]
async fn call_right_after_a_start_waits_for_the_catalogue_and_its_tool() {
    // Whether the tool describes itself, and how many milliseconds after the executor it is there.
    for (described, there_after) in [(true, 300), (true, 3_000), (false, 3_000)] {
        let world = World::new().await;
        let (_executor, _life) = world.executor("a").await;
        world.publish(&world.item(EffectClass::AtMostOnce)).await;
        tokio::time::sleep(Duration::from_millis(there_after)).await;
        let mut tool = world.tool().await;
        let (playing, info) = play(&world.server, "{\"type\":\"object\"}").await;
        if !described {
            playing.abort();
        }
        futures::join!(info, async {
            let request = tool.asked().await;
            tool.answer(&request, &[], b"done").await;
            let result = world.result().await;
            assert_eq!(result.outcome, Outcome::Ok, "{there_after} ms: {}", result.content);
            playing.abort();
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
async fn tool_whose_schema_costs_too_much_is_not_listed_and_stops_nobody() {
    let world = World::new().await;
    let mut asked = world.tool().await;
    // It may have come into the catalogue in other ways, too.
    let spec = contract::tool::ToolSpec {
        name: ToolName::new("act").unwrap(),
        description: String::new(),
        parameters: contract::Json::parse(&doubling_schema()).unwrap(),
        effect: EffectClass::Pure,
        approval: Approval::Never,
        timeout_ms: None,
        max_output: None,
        instructions: None,
        version: String::new(),
    };
    world.bus.put_tool(&world.key.tenant, &spec).await.unwrap();
    let (_executor, _life) = world.executor("a").await;
    let (playing, described) = play(&world.server, &doubling_schema()).await;
    futures::join!(described, async {
        until(&world, &[]).await;
        world.publish(&world.item(EffectClass::Pure)).await;
        let request = asked.asked().await;
        asked.answer(&request, &[], b"done").await;
        assert_eq!(world.result().await.outcome, Outcome::Ok);
        playing.abort();
    });
}

#[tokio::test(start_paused = true)]
async fn arguments_whose_check_never_ended_are_not_checked_again() {
    for lost in [false, true] {
        let world = World::new().await;
        let mut asked = world.tool().await;
        let (_executor, _life) = world.executor("a").await;
        let (playing, described) = play(&world.server, r#"{"type":"object"}"#).await;
        futures::join!(described, async {
            until(&world, &["act"]).await;
            if lost {
                // What an executor leaves behind that is lost in the middle of it.
                let claimed = world.bus.claim_part(&world.key, &call().call, &["0", "check-1"], "another").await;
                assert_eq!(claimed.unwrap(), bus::Claim::Mine);
            }
            let mut item = world.item(EffectClass::Pure);
            item.arguments = contract::Json::of(&json!({"text": "x".repeat(100_000)}));
            world.publish(&item).await;
            if lost {
                let result = world.result().await;
                assert_eq!((result.outcome, result.code), (Outcome::Error, Some(ErrorCode::Poison)));
                assert!(result.content.contains("was not called"), "{}", result.content);
                assert!(asked.is_left_alone().await);
            } else {
                let request = asked.asked().await;
                asked.answer(&request, &[], b"done").await;
                assert_eq!(world.result().await.outcome, Outcome::Ok);
            }
            playing.abort();
        });
    }
}
