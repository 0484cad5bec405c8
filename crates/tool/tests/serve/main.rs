//! A tool as its callers see it, on a real nats-server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ailoop_tool::async_nats::{self, Client, HeaderMap, Message, Request};
use ailoop_tool::wire::header;
use ailoop_tool::{Call, Effect, Reply, Serving, Tool, ToolError, Tools};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::Notify;

use server::Server;

const SOON: Duration = Duration::from_secs(10);

struct World {
    client: Client,
    serving: Serving,
    _server: Server,
}

async fn world(tools: impl IntoIterator<Item = Tool>) -> World {
    let server = Server::start();
    let tools = tools.into_iter().fold(Tools::connect(&server.url).await.unwrap(), Tools::tool);
    let serving = tools.serve().await.unwrap();
    let client = async_nats::connect(&server.url).await.unwrap();
    World { client, serving, _server: server }
}

fn call_headers(id: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CALL, id);
    headers
}

impl World {
    async fn ask(&self, tool: &str, headers: HeaderMap, body: &str) -> Message {
        // The tool's subscription and this connection are not ordered: until it is known, nobody responds.
        let subject = format!("ai_tool.default.{tool}");
        for _ in 0..1_000 {
            let request = Request::new().headers(headers.clone()).payload(body.to_owned().into()).timeout(Some(SOON));
            match self.client.send_request(subject.clone(), request).await {
                Ok(reply) => return reply,
                Err(error) if error.kind() == async_nats::RequestErrorKind::NoResponders => {
                    tokio::task::yield_now().await;
                }
                Err(error) => panic!("{error}"),
            }
        }
        panic!("nobody serves {subject}");
    }
}

fn error_of(reply: &Message) -> Option<&str> {
    reply.headers.as_ref()?.get(header::ERROR).map(async_nats::HeaderValue::as_str)
}

#[tokio::test]
async fn a_call_is_answered_and_an_error_is_marked() {
    let tool = Tool::new("double").handler(|call: Call| async move {
        let number: i64 = call.arguments::<Value>()?["n"].as_i64().ok_or_else(|| ToolError::new("n\nis missing"))?;
        Ok(json!({"n": number * 2, "call": call.id()}))
    });
    let panics = Tool::new("panics").handler(|_| async { panic!("oh") as Result<Reply, ToolError> });
    let lost = Tool::new("lost").handler(|_| async { Err::<Reply, _>(ToolError::unknown("gone in the middle")) });
    let world = world([tool, panics, lost]).await;
    let reply = world.ask("double", call_headers("s1-c1"), r#"{"n": 21}"#).await;
    assert_eq!(serde_json::from_slice::<Value>(&reply.payload).unwrap(), json!({"n": 42, "call": "s1-c1"}));
    assert_eq!(error_of(&reply), None);
    let reply = world.ask("double", HeaderMap::new(), "").await;
    assert_eq!((error_of(&reply), &*reply.payload), (Some("n"), &b"n\nis missing"[..]));
    let reply = world.ask("double", HeaderMap::new(), "no json").await;
    assert!(error_of(&reply).unwrap().starts_with("the arguments do not fit"));
    let reply = world.ask("panics", HeaderMap::new(), "").await;
    assert!(error_of(&reply).unwrap().contains("panicked"));
    let outcome = |reply: &Message| Some(reply.headers.as_ref()?.get(header::OUTCOME)?.as_str().to_owned());
    assert_eq!(outcome(&reply), None);
    let reply = world.ask("lost", HeaderMap::new(), "").await;
    assert_eq!((error_of(&reply), outcome(&reply).as_deref()), (Some("gone in the middle"), Some("unknown")));
}

#[tokio::test]
async fn calls_run_beside_each_other_and_progress_comes_first() {
    let gate = Arc::new(Notify::new());
    let opened = gate.clone();
    let waits = Tool::new("waits").handler(move |call: Call| {
        let gate = gate.clone();
        async move {
            call.progress("half").await;
            gate.notified().await;
            Ok("done")
        }
    });
    let opens = Tool::new("opens").handler(move |_| {
        opened.notify_one();
        async { Ok("opened") }
    });
    let world = world([waits, opens]).await;
    world.ask("opens", HeaderMap::new(), "").await;
    world.ask("waits", HeaderMap::new(), "").await;
    let inbox = world.client.new_inbox();
    let mut replies = world.client.subscribe(inbox.clone()).await.unwrap();
    world.client.publish_with_reply("ai_tool.default.waits", inbox, "".into()).await.unwrap();
    let progress = replies.next().await.unwrap();
    assert!(progress.headers.unwrap().get(header::PROGRESS).is_some());
    world.ask("opens", HeaderMap::new(), "").await;
    assert_eq!(&*replies.next().await.unwrap().payload, b"done");
}

#[tokio::test]
async fn a_cancel_drops_the_call() {
    struct Dropped(Arc<AtomicUsize>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let counter = dropped.clone();
    let tool = Tool::new("hangs").handler(move |call: Call| {
        let guard = Dropped(counter.clone());
        async move {
            let _guard = guard;
            call.progress("began").await;
            std::future::pending::<()>().await;
            Ok("never")
        }
    });
    let world = world([tool]).await;
    world.ask("hangs", call_headers("probe"), "").await;
    let inbox = world.client.new_inbox();
    let mut replies = world.client.subscribe(inbox.clone()).await.unwrap();
    let subject = "ai_tool.default.hangs";
    world.client.publish_with_reply_and_headers(subject, inbox, call_headers("c1"), "".into()).await.unwrap();
    replies.next().await.unwrap();
    let cancel = "ai_tool_cancel.default.hangs";
    world.client.publish_with_headers(cancel, call_headers("c1"), "".into()).await.unwrap();
    assert_eq!(error_of(&replies.next().await.unwrap()), Some("cancelled"));
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_services_protocol_describes_the_tool() {
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
async fn stopping_finishes_what_runs_and_is_announced() {
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
    world.client.publish_with_reply("ai_tool.default.slow", inbox, "".into()).await.unwrap();
    replies.next().await.unwrap();
    let ((), ()) = tokio::join!(world.serving.stop(SOON), async {
        opened.notify_one();
    });
    assert_eq!(&*replies.next().await.unwrap().payload, b"finished");
    assert!(announced.next().await.is_some());
    let again = world.client.request("ai_tool.default.slow", "".into()).await.unwrap_err();
    assert_eq!(again.kind(), async_nats::RequestErrorKind::NoResponders);
}

#[tokio::test]
async fn a_name_that_is_no_token_is_refused() {
    let server = Server::start();
    let tools = Tools::connect(&server.url).await.unwrap().tool(Tool::new("a.b"));
    assert!(tools.serve().await.is_err());
    let tools = Tools::connect(&server.url).await.unwrap().tenant("A").tool(Tool::new("a"));
    assert!(tools.serve().await.is_err());
}
