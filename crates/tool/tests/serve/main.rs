//! A tool as its callers see it, on a real nats-server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

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

const SOON: Duration = Duration::from_secs(10);

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
