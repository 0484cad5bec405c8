//! A tool as its callers see it, on a real nats-server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod lifecycle;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ailoop_tool::async_nats::{self, Client, HeaderMap, Message, Request};
use ailoop_tool::wire::header;
use ailoop_tool::{Call, Effect, Reply, ServeError, Serving, Tool, ToolError, Tools, schemars};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::Notify;

use server::Server;

const SOON: Duration = Duration::from_mins(3);

struct World {
    client: Client,
    serving: Serving,
    _server: Server,
}

async fn world(tools: impl IntoIterator<Item = Tool>) -> World {
    let server = Server::start();
    let tools: Vec<Tool> = tools.into_iter().collect();
    let last = tools.last().unwrap().name().to_owned();
    let tools = tools.into_iter().fold(Tools::connect(&server.url).await.unwrap(), Tools::tool);
    let serving = tools.serve().await.unwrap();
    let client = async_nats::connect(&server.url).await.unwrap();
    // The last subscription is the last to reach the server.
    let known = server::ask(&client, &format!("$SRV.PING.{last}"), Request::new).await;
    let known: Value = serde_json::from_slice(&known.payload).unwrap();
    let instance = format!("$SRV.PING.{}.{}", known["name"].as_str().unwrap(), known["id"].as_str().unwrap());
    server::ask(&client, &instance, Request::new).await;
    World { client, serving, _server: server }
}

fn call_headers(id: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::CALL, id);
    headers
}

fn deadline_in(seconds: i64) -> HeaderMap {
    let at = time::OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
    let mut headers = HeaderMap::new();
    headers.insert(header::DEADLINE, at.format(&time::format_description::well_known::Rfc3339).unwrap());
    headers
}

impl World {
    async fn ask(&self, tool: &str, headers: HeaderMap, body: &str) -> Message {
        let request = || Request::new().headers(headers.clone()).payload(body.to_owned().into()).timeout(Some(SOON));
        server::ask(&self.client, &format!("ai_tool.default.{tool}"), request).await
    }
}

fn error_of(reply: &Message) -> Option<&str> {
    reply.headers.as_ref()?.get(header::ERROR).map(async_nats::HeaderValue::as_str)
}

fn outcome_of(reply: &Message) -> Option<&str> {
    reply.headers.as_ref()?.get(header::OUTCOME).map(async_nats::HeaderValue::as_str)
}

#[tokio::test]
async fn call_is_answered_and_error_is_marked() {
    let tool = Tool::new("double").handler(|call: Call| async move {
        let number: i64 = call.arguments::<Value>()?["n"].as_i64().ok_or_else(|| ToolError::new("n\nis missing"))?;
        Ok(json!({"n": number * 2, "call": call.id()}))
    });
    let panics = Tool::new("panics").handler(|_| async { panic!("oh") as Result<Reply, ToolError> });
    let looks = Tool::new("looks").effect(Effect::Pure).handler(|_| async { panic!("oh") as Result<Reply, ToolError> });
    let lost = Tool::new("lost").handler(|_| async { Err::<Reply, _>(ToolError::unknown("gone in the middle")) });
    let world = world([tool, panics, looks, lost]).await;
    let reply = world.ask("double", call_headers("s1-c1"), r#"{"n": 21}"#).await;
    assert_eq!(serde_json::from_slice::<Value>(&reply.payload).unwrap(), json!({"n": 42, "call": "s1-c1"}));
    assert_eq!(error_of(&reply), None);
    let reply = world.ask("double", HeaderMap::new(), "").await;
    assert_eq!((error_of(&reply), &*reply.payload), (Some("n"), &b"n\nis missing"[..]));
    let reply = world.ask("double", HeaderMap::new(), "no json").await;
    assert!(error_of(&reply).unwrap().starts_with("the arguments do not fit"));
    let reply = world.ask("double", HeaderMap::new(), "[21]").await;
    assert!(error_of(&reply).unwrap().contains("not a JSON object"));
    // An interrupted call may have taken effect, unless the tool is pure.
    for (tool, outcome) in [("panics", Some("unknown")), ("looks", None)] {
        let reply = world.ask(tool, HeaderMap::new(), "").await;
        assert!(error_of(&reply).unwrap().contains("panicked"));
        assert_eq!(outcome_of(&reply), outcome, "{tool}");
    }
    let reply = world.ask("lost", HeaderMap::new(), "").await;
    assert_eq!((error_of(&reply), outcome_of(&reply)), (Some("gone in the middle"), Some("unknown")));
}

#[tokio::test]
async fn reconcilable_tool_without_a_probe_is_not_served() {
    let server = Server::start();
    let tools = Tools::connect(&server.url).await.unwrap().tool(Tool::new("pay").effect(Effect::Reconcilable));
    let refused = tools.serve().await.err().unwrap();
    assert!(matches!(refused, ServeError::NoProbe(name) if name == "pay"));
}

#[tokio::test]
async fn tool_with_a_probe_reports_the_outcome_of_a_call() {
    let began = Arc::new(Notify::new());
    let begins = began.clone();
    let pay = Tool::new("pay").probe(async |call: Call| match call.id() {
        "done" => Ok(Some(json!({"paid": call.arguments::<Value>()?["amount"]}))),
        "never" => Ok(None),
        "panics" => panic!("oh"),
        _ => Err(ToolError::new("the bank is away")),
    });
    let pay = pay.handler(move |_| {
        begins.notify_one();
        std::future::pending::<Result<Reply, ToolError>>()
    });
    let world = world([pay]).await;
    let probe = async |id: &str| {
        let request =
            || Request::new().headers(call_headers(id)).payload(r#"{"amount": 5}"#.into()).timeout(Some(SOON));
        server::ask(&world.client, "ai_tool_probe.default.pay", request).await
    };
    let done = probe("done").await;
    assert_eq!((outcome_of(&done), &*done.payload), (None, &br#"{"paid":5}"#[..]));
    let never = probe("never").await;
    assert_eq!((outcome_of(&never), error_of(&never)), (Some("none"), None));
    for (id, why) in [("other", "the bank is away"), ("panics", "the tool's probe failed badly (it panicked)")] {
        let unknown = probe(id).await;
        assert_eq!((outcome_of(&unknown), error_of(&unknown)), (Some("unknown"), Some(why)));
    }
    // The outcome of a running call is unknown, whatever the probe would find.
    world.client.publish_with_headers("ai_tool.default.pay", call_headers("never"), "{}".into()).await.unwrap();
    began.notified().await;
    let running = probe("never").await;
    assert_eq!((outcome_of(&running), error_of(&running)), (Some("unknown"), Some("it still works on the call")));
}

#[tokio::test]
async fn result_over_the_nats_limit_is_an_error_after_the_call() {
    let result = Tool::new("result").handler(|_| async { Ok("x".repeat(2 << 20)) });
    let pure = Tool::new("pure").effect(Effect::Pure).handler(|_| async { Ok("x".repeat(2 << 20)) });
    let error = Tool::new("error").handler(|_| async { Err::<Reply, _>(ToolError::new("x".repeat(2 << 20))) });
    let world = world([result, pure, error]).await;
    for (tool, outcome) in [("result", Some("unknown")), ("pure", None)] {
        let reply = world.ask(tool, HeaderMap::new(), "").await;
        let text = "the tool ran; its result has 2097152 bytes, which is more than NATS carries";
        assert_eq!((error_of(&reply), outcome_of(&reply)), (Some(text), outcome));
    }
    let reply = world.ask("error", HeaderMap::new(), "").await;
    assert!(error_of(&reply).unwrap().starts_with("xxx") && reply.payload.len() > 1_000_000);
}

#[tokio::test]
async fn typed_tool_publishes_its_schema_and_refuses_other_arguments() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Double {
        /// The number to double.
        n: i64,
    }
    let tool = Tool::typed("double", async |Double { n }, call: Call| {
        Ok::<_, ToolError>(json!({"n": n * 2, "call": call.id()}))
    });
    let world = world([tool]).await;
    let reply = world.ask("double", call_headers("s1-c1"), r#"{"n": 21}"#).await;
    assert_eq!(serde_json::from_slice::<Value>(&reply.payload).unwrap(), json!({"n": 42, "call": "s1-c1"}));
    for (body, expected) in [("", "missing field `n`"), (r#"{"n": "x"}"#, "n: invalid type"), ("[1]", "a JSON object")]
    {
        let reply = world.ask("double", HeaderMap::new(), body).await;
        assert!(error_of(&reply).unwrap().contains(expected), "{body}: {reply:?}");
    }
    let info = world.client.request("$SRV.INFO.double", "".into()).await.unwrap();
    let info: async_nats::service::Info = serde_json::from_slice(&info.payload).unwrap();
    let schema: Value = serde_json::from_str(&info.endpoints[0].metadata["ailoop.parameters"]).unwrap();
    let n = json!({"type": "integer", "description": "The number to double."});
    let properties = json!({"n": n});
    let all = json!({"type": "object", "properties": properties, "required": ["n"], "additionalProperties": false});
    assert_eq!(schema, all);
}

#[tokio::test]
async fn calls_run_in_parallel_and_progress_comes_before_the_result() {
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
async fn cancel_drops_the_call() {
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
    let reply = replies.next().await.unwrap();
    assert_eq!((error_of(&reply), outcome_of(&reply)), (Some("cancelled"), Some("unknown")));
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn call_waiting_for_a_permit_is_cancelled_or_late_and_never_begun() {
    let (begun, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (counter, opened) = (begun.clone(), gate.clone());
    let tool = Tool::new("busy").handler(move |call: Call| {
        let gate = gate.clone();
        counter.fetch_add(1, Ordering::SeqCst);
        async move {
            call.progress("began").await;
            gate.notified().await;
            Ok("done")
        }
    });
    let server = Server::start();
    let tools = Tools::connect(&server.url).await.unwrap().tool(tool).concurrency(1);
    let world = World {
        serving: tools.serve().await.unwrap(),
        client: async_nats::connect(&server.url).await.unwrap(),
        _server: server,
    };
    opened.notify_one();
    world.ask("busy", HeaderMap::new(), "").await;
    let send = async |headers: HeaderMap| {
        let inbox = world.client.new_inbox();
        let replies = world.client.subscribe(inbox.clone()).await.unwrap();
        world.client.publish_with_reply_and_headers("ai_tool.default.busy", inbox, headers, "".into()).await.unwrap();
        replies
    };
    let mut runs = send(call_headers("c1")).await;
    assert_eq!(&*runs.next().await.unwrap().payload, b"began");

    let mut waits = send(call_headers("c2")).await;
    // A waiting call sends a receipt, like a running one.
    assert!(waits.next().await.unwrap().headers.unwrap().get(header::INSTANCE).is_some());
    world.client.publish_with_headers("ai_tool_cancel.default.busy", call_headers("c2"), "".into()).await.unwrap();
    let reply = waits.next().await.unwrap();
    assert_eq!((error_of(&reply), outcome_of(&reply)), (Some("cancelled"), None));

    let mut late = send(deadline_in(0)).await;
    let reply = loop {
        let reply = late.next().await.unwrap();
        if error_of(&reply).is_some() {
            break reply;
        }
    };
    assert!(error_of(&reply).unwrap().contains("deadline"), "{reply:?}");
    assert_eq!(outcome_of(&reply), None);
    opened.notify_one();
    loop {
        let reply = runs.next().await.unwrap();
        if reply.headers.is_none() {
            assert_eq!(&*reply.payload, b"done");
            break;
        }
    }
    assert_eq!(begun.load(Ordering::SeqCst), 2, "those that waited were not begun");
}

#[tokio::test]
async fn long_call_sends_a_receipt_and_progress_extends_its_deadline() {
    let gate = Arc::new(Notify::new());
    let opened = gate.clone();
    let tool = Tool::new("slow").timeout(Duration::from_secs(5)).handler(move |call: Call| {
        let gate = gate.clone();
        async move {
            let before = call.time_left().unwrap();
            call.progress("begun").await;
            gate.notified().await;
            Ok(json!({"before": before.as_secs(), "after": call.time_left().unwrap().as_secs()}))
        }
    });
    let world = world([tool]).await;
    opened.notify_one();
    world.ask("slow", deadline_in(60), "").await;
    let inbox = world.client.new_inbox();
    let mut replies = world.client.subscribe(inbox.clone()).await.unwrap();
    world
        .client
        .publish_with_reply_and_headers("ai_tool.default.slow", inbox, deadline_in(2), "".into())
        .await
        .unwrap();
    for text in ["begun", ""] {
        let progress = replies.next().await.unwrap();
        let headers = progress.headers.unwrap();
        assert!(headers.get(header::PROGRESS).is_some());
        assert_eq!(&*progress.payload, text.as_bytes());
        // The instance in the header identifies this replica.
        let instance = headers.get(header::INSTANCE).unwrap().as_str();
        world.client.request(format!("$SRV.PING.{instance}"), "".into()).await.unwrap();
    }
    opened.notify_one();
    let last: Value = serde_json::from_slice(&replies.next().await.unwrap().payload).unwrap();
    assert!(last["before"].as_u64() < Some(2) && last["after"].as_u64() > Some(2), "{last}");
}

#[tokio::test]
async fn call_with_endless_progress_can_still_answer() {
    // NATS lets a tool's user answer a call a thousand times.
    let tool = Tool::new("chatty").timeout(Duration::from_hours(1)).handler(|call: Call| async move {
        for piece in 0..2_000 {
            call.progress(format!("piece {piece}")).await;
        }
        Ok("done")
    });
    let world = world([tool]).await;
    let inbox = world.client.new_inbox();
    let mut replies = world.client.subscribe(inbox.clone()).await.unwrap();
    world.client.publish_with_reply("ai_tool.default.chatty", inbox, "".into()).await.unwrap();
    let mut count = 0;
    while replies.next().await.unwrap().headers.is_some_and(|headers| headers.get(header::PROGRESS).is_some()) {
        count += 1;
    }
    assert_eq!(count, 500);
}
