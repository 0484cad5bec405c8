//! The replica of a tool as a service: its description, its end, and queries about its calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ailoop_tool::async_nats::{self, HeaderMap, Request};
use ailoop_tool::wire::header;
use ailoop_tool::{Call, Effect, Tool, Tools};
use futures::StreamExt;
use serde_json::json;
use tokio::sync::Notify;

use crate::server::Server;
use crate::{SOON, World, call_headers, world};

#[tokio::test]
async fn services_protocol_describes_the_tool() {
    let tool =
        Tool::new("look").description("Looks.").effect(Effect::Pure).version("2.1.0").handler(|_| async { Ok("") });
    let world = world([tool]).await;
    world.ask("look", HeaderMap::new(), "").await;
    for subject in ["$SRV.INFO", "$SRV.INFO.look"] {
        let info: async_nats::service::Info =
            serde_json::from_slice(&world.client.request(subject, "".into()).await.unwrap().payload).unwrap();
        assert_eq!((info.kind.as_str(), info.version.as_str()), ("io.nats.micro.v1.info_response", "2.1.0"));
        let endpoint = &info.endpoints[0];
        assert_eq!((endpoint.subject.as_str(), endpoint.queue_group.as_str()), ("ai_tool.default.look", "tools"));
        assert_eq!(endpoint.metadata["ailoop.effect"], "pure");
    }
    let stats: async_nats::service::Stats =
        serde_json::from_slice(&world.client.request("$SRV.STATS.look", "".into()).await.unwrap().payload).unwrap();
    assert_eq!(stats.endpoints[0].queue_group, "tools");
    world.client.request("$SRV.PING", "".into()).await.unwrap();
}

#[tokio::test]
async fn stop_finishes_running_calls_and_is_announced() {
    let gate = Arc::new(Notify::new());
    let opened = gate.clone();
    let tool = Tool::new("slow").handler(move |call: Call| {
        let gate = gate.clone();
        async move {
            call.progress("began").await;
            gate.notified().await;
            Ok("finished")
        }
    });
    let world = world([tool]).await;
    let mut announced = world.client.subscribe(ailoop_tool::wire::ANNOUNCE).await.unwrap();
    opened.notify_one();
    world.ask("slow", HeaderMap::new(), "").await;
    let inbox = world.client.new_inbox();
    let mut replies = world.client.subscribe(inbox.clone()).await.unwrap();
    let named = call_headers("c1");
    world.client.publish_with_reply_and_headers("ai_tool.default.slow", inbox, named, "".into()).await.unwrap();
    let instance = replies.next().await.unwrap().headers.unwrap().get(header::INSTANCE).unwrap().to_string();
    let ((), ()) = tokio::join!(world.serving.stop(SOON), async {
        // No further call arrives here, but this one runs, and queries about it are answered.
        let is_no_responders =
            |error: async_nats::RequestError| error.kind() == async_nats::RequestErrorKind::NoResponders;
        // A query that is on its way when the tool stops is not answered.
        let ask = || Request::new().timeout(Some(Duration::from_millis(100)));
        while !world.client.send_request("$SRV.PING.slow", ask()).await.is_err_and(is_no_responders) {}
        world.client.request(format!("$SRV.PING.{instance}"), "".into()).await.unwrap();
        // A query without an instance still finds that a replica has the call.
        let of_call = world.client.request_with_headers("$SRV.INFO.slow", call_headers("c1"), "".into()).await.unwrap();
        assert_eq!(of_call.headers.unwrap().get(header::RUNNING).unwrap().as_str(), "1");
        opened.notify_one();
    });
    assert_eq!(&*replies.next().await.unwrap().payload, b"finished");
    assert!(announced.next().await.is_some());
    let again = world.client.request("ai_tool.default.slow", "".into()).await.unwrap_err();
    assert_eq!(again.kind(), async_nats::RequestErrorKind::NoResponders);
}

#[tokio::test]
async fn stop_while_nats_is_away_ends_in_time() {
    let World { serving, _server: server, .. } = world([Tool::new("look").handler(|_| async { Ok("") })]).await;
    drop(server);
    let stopped = tokio::time::timeout(SOON, serving.stop(Duration::from_millis(100))).await;
    stopped.expect("the tools end without a server");
}

#[tokio::test]
async fn name_that_is_no_token_is_refused() {
    let server = Server::start();
    let tools = Tools::connect(&server.url).await.unwrap().tool(Tool::new("a.b"));
    assert!(tools.serve().await.is_err());
    let tools = Tools::connect(&server.url).await.unwrap().tenant("A").tool(Tool::new("a"));
    assert!(tools.serve().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_stops_under_load_no_call_is_lost() {
    /// Replicas that stop, one after the other, while another one stays.
    const STOPS: usize = 40;
    /// Callers at the same time.
    const CALLERS: usize = 16;
    let server = Server::start();
    let serve = async || {
        let echo = Tool::new("echo").handler(|call: Call| async move { Ok(json!({"call": call.id()})) });
        Tools::connect(&server.url).await.unwrap().tool(echo).serve().await.unwrap()
    };
    let stays = serve().await;
    let (ended, answered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let client = async_nats::connect(&server.url).await.unwrap();
        let (ended, answered) = (ended.clone(), answered.clone());
        callers.spawn(async move {
            let mut lost = 0;
            while ended.load(Ordering::Relaxed) == 0 {
                let request = Request::new().payload("{}".into()).timeout(Some(Duration::from_secs(2)));
                match client.send_request("ai_tool.default.echo", request).await {
                    Ok(_) => drop(answered.fetch_add(1, Ordering::Relaxed)),
                    Err(error) if error.kind() == async_nats::RequestErrorKind::NoResponders => {}
                    Err(_) => lost += 1,
                }
            }
            lost
        });
    }
    for _ in 0..STOPS {
        let goes = serve().await;
        let from = answered.load(Ordering::Relaxed);
        while answered.load(Ordering::Relaxed) < from + 200 {
            tokio::task::yield_now().await;
        }
        goes.stop(SOON).await;
    }
    ended.store(1, Ordering::Relaxed);
    let lost: usize = callers.join_all().await.into_iter().sum();
    assert_eq!(lost, 0, "of {} calls", answered.load(Ordering::Relaxed));
    stays.stop(SOON).await;
}

#[tokio::test]
async fn replica_queried_about_a_call_reports_whether_it_runs() {
    let gate = Arc::new(Notify::new());
    let held = gate.clone();
    let world = world([Tool::new("slow").handler(move |_: Call| {
        let held = held.clone();
        async move {
            held.notified().await;
            Ok("done")
        }
    })])
    .await;
    let read_running = async |call: &str| {
        let request = Request::new().headers(call_headers(call)).timeout(Some(SOON));
        let answer = world.client.send_request("$SRV.INFO.slow", request).await.unwrap();
        answer.headers.unwrap().get(header::RUNNING).unwrap().to_string()
    };
    let call = world.ask("slow", call_headers("c1"), "{}");
    let check = async {
        while read_running("c1").await != "1" {
            tokio::task::yield_now().await;
        }
        assert_eq!(read_running("c2").await, "0");
        gate.notify_one();
    };
    futures::join!(call, check);
    while read_running("c1").await != "0" {
        tokio::task::yield_now().await;
    }
}
