//! A turn has one trace: from its beginning through all processes to the model server and the tool, however many
//! replicas take part and whichever of them die.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ailoop_tests::client::ReceivedEvent;
use ailoop_tests::model::{Gate, ModelServer, ScriptedReply};
use ailoop_tests::otlp::{Collector, Span};
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::tool_server::{RecordedCall, ToolAnswer, ToolServer, ToolServerBuilder};
use ailoop_tests::wait::{PATIENCE, eventually, soon};
use ailoop_tool::{Effect, Tool};
use anyhow::Context;
use axum::Router;
use axum::http::{HeaderMap, StatusCode, Uri};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// The log counts in milliseconds.
const MILLI: u64 = 1_000_000;

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

/// The trace of a turn. What the edge says by itself, such as the reply so far to a viewer that comes late, names none.
fn trace_of(events: &[ReceivedEvent]) -> anyhow::Result<String> {
    let completed = events.iter().find(|event| event.topic == "turn.completed").context("the turn has not ended")?;
    Ok(completed.trace_id.clone())
}

/// The fleet's spans of a trace: those of a client's request are apart.
fn counts(spans: &[Span]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for span in spans {
        *counts.entry(&*span.name).or_default() += 1;
    }
    counts
}

/// Finds the mistakes in the spans of a turn: none if they are one tree below the turn, without a nameless span.
fn mistakes(spans: &[Span]) -> Vec<String> {
    let ids: BTreeSet<&str> = spans.iter().map(|span| &*span.id).collect();
    let mut mistakes = Vec::new();
    if ids.len() != spans.len() {
        mistakes.push("a span came twice".to_owned());
    }
    for span in spans {
        if span.name.trim().is_empty() || span.name.ends_with(' ') {
            mistakes.push(format!("{} has no name", span.id));
        }
        if !span.parent.is_empty() && !ids.contains(&*span.parent) {
            mistakes.push(format!("{} {} is an orphan", span.service, span.name));
        }
    }
    let roots: Vec<&str> = spans.iter().filter(|span| span.parent.is_empty()).map(|span| &*span.name).collect();
    if roots != ["invoke_agent e"] {
        mistakes.push(format!("the roots are {roots:?}"));
    }
    mistakes
}

async fn complete(collector: &Collector, trace: &str, expected: &BTreeMap<&str, usize>) -> anyhow::Result<Vec<Span>> {
    eventually("every span of the turn", async || {
        let spans = collector.trace(trace);
        counts(&spans) == *expected && mistakes(&spans).is_empty()
    })
    .await
    .map_err(|error| {
        let spans = collector.trace(trace);
        anyhow::anyhow!("{error}: {:?} {:?} {}", mistakes(&spans), counts(&spans), drawn(&spans))
    })?;
    Ok(collector.trace(trace))
}

async fn traced_fleet(collector: &Collector, model: &ModelServer) -> anyhow::Result<ProcessFleet> {
    let environment = collector.environment();
    fleet_with(&environment, model).await
}

async fn fleet_with(environment: &[(String, String)], model: &ModelServer) -> anyhow::Result<ProcessFleet> {
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (&**name, &**value)).collect();
    ProcessFleet::with(&[("test", &model.base_url())], &environment).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turn_has_one_trace_through_all_services() -> anyhow::Result<()> {
    let replies = vec![
        ScriptedReply::calls(&[("echo", json!({"n": 1})), ("mark", json!({"n": 2}))]),
        ScriptedReply::signal("I think. ", "CONTINUE"),
        ScriptedReply::signal("Done.", "TERMINATE"),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let collector = Collector::start().await?;
    let process_fleet = traced_fleet(&collector, &model).await?;
    let tool_server = ToolServer::plain(&process_fleet.nats.url()).await?;
    let mut services = Vec::new();
    for service in ["orchestrator", "gateway", "executor"] {
        services.push(process_fleet.spawn(service).await?);
    }
    process_fleet.wait_for_tools(&["echo", "mark"]).await?;
    let edge = process_fleet.edge().await?;
    let client = edge.client().await?;
    client.start("s", "go").await?;
    let events = client.watch("s").await?.to_end().await?;

    let trace = trace_of(&events)?;
    assert_eq!(trace.len(), 32, "{trace}");
    let of_the_turn =
        |event: &&ReceivedEvent| !["session_started", "message.ai_chunk_received"].contains(&&*event.topic);
    for event in events.iter().filter(of_the_turn) {
        assert_eq!(event.trace_id, trace, "{}", event.topic);
    }
    let expected = BTreeMap::from([
        ("invoke_agent e", 1),
        ("compose default", 1),
        ("chat test", 3),
        ("POST", 3),
        ("execute_tool echo", 1),
        ("execute_tool mark", 1),
        ("call echo", 1),
        ("call mark", 1),
        ("continuation.decide", 3),
    ]);
    let spans = complete(&collector, &trace, &expected).await?;

    // The turn's span is as long as the turn, and says what it used.
    let turn = named(&spans, "invoke_agent e")[0];
    for span in &spans {
        let is_within = turn.time.0 <= span.time.0 + MILLI && span.time.1 <= turn.time.1 + MILLI;
        assert!(is_within || span.name.starts_with("compose"), "{} {}", span.name, drawn(&spans));
    }
    assert_eq!(turn.texts["gen_ai.agent.id"], "e");
    assert!(!turn.texts["gen_ai.agent.name"].is_empty());
    assert_eq!((turn.integers["ailoop.turn"], turn.integers["ailoop.iteration.count"]), (1, 3));
    assert_eq!(turn.texts["ailoop.stop_reason"], "completed");
    let used = |name: &str| -> i64 { named(&spans, "chat test").iter().map(|chat| chat.integers[name]).sum() };
    for name in ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"] {
        assert!(turn.integers[name] > 0 && turn.integers[name] == used(name), "{name}: {}", drawn(&spans));
    }
    assert!(named(&spans, "chat test").iter().all(|chat| chat.lists["gen_ai.response.finish_reasons"] == 1));
    // Messages, arguments and results are in no span.
    for span in &spans {
        assert!(!span.texts.keys().any(|key| key.ends_with("messages") || key.contains("arguments")), "{span:?}");
    }

    // The `traceparent` that models and tools get names the span of their call.
    for request in model.requests() {
        let parent = request.header("traceparent").unwrap_or_default().to_owned();
        assert!(named(&spans, "chat test").iter().any(|span| of(span) == parent[..52]), "{parent}: {}", drawn(&spans));
    }
    for call in tool_server.calls() {
        let span = named(&spans, &format!("execute_tool {}", call.tool))[0];
        assert_eq!(of(span), call.traceparent[..52]);
    }
    // A request of the client has a trace of its own, with a link to the one that it began.
    let start = collector.spans().into_iter().find(|span| span.name == "session.start");
    assert!(start.is_some_and(|start| start.parent.is_empty() && start.links.len() == 1 && start.trace != trace));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_of_three_orchestrators_have_one_trace_each_and_are_linked() -> anyhow::Result<()> {
    const TURNS: usize = 6;
    let script =
        || vec![ScriptedReply::calls(&[("echo", json!({"n": 1}))]), ScriptedReply::signal("Done.", "TERMINATE")];
    let model = ModelServer::with_replies((0..TURNS).flat_map(|_| script()).collect()).await?;
    let collector = Collector::start().await?;
    let process_fleet = traced_fleet(&collector, &model).await?;
    let _tool_server = ToolServer::plain(&process_fleet.nats.url()).await?;
    let mut services = Vec::new();
    for service in ["orchestrator", "orchestrator", "orchestrator", "gateway", "executor"] {
        services.push(process_fleet.spawn(service).await?);
    }
    process_fleet.wait_for_tools(&["echo", "mark"]).await?;
    let edge = process_fleet.edge().await?;
    let client = edge.client().await?;
    client.start_interactive("s", "go").await?;
    let mut watching = client.watch("s").await?;
    let mut turns = Vec::new();
    for turn in 1..=TURNS {
        if turn > 1 {
            client.send("s", "again", "queue").await?;
        }
        let completed = watching.until("turn.completed", |data| data["turn"] == turn).await?;
        turns.push(completed.trace_id.clone());
    }
    assert_eq!(turns.iter().collect::<BTreeSet<_>>().len(), TURNS, "{turns:?}");
    let mut previous: Option<String> = None;
    for trace in &turns {
        let mut expected = BTreeMap::from([
            ("invoke_agent e", 1),
            ("chat test", 2),
            ("POST", 2),
            ("execute_tool echo", 1),
            ("call echo", 1),
            ("continuation.decide", 2),
        ]);
        if previous.is_none() {
            expected.insert("compose default", 1);
        }
        let spans = complete(&collector, trace, &expected).await?;
        let turn = named(&spans, "invoke_agent e")[0].clone();
        assert_eq!(turn.links, previous.into_iter().collect::<Vec<_>>(), "{}", drawn(&spans));
        previous = Some(turn.id);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_processes_leave_one_connected_trace() -> anyhow::Result<()> {
    let replies = vec![
        ScriptedReply::text("this one ").and_hang(),
        ScriptedReply::calls(&[("slow", json!({"n": 1}))]),
        ScriptedReply::text("and this ").and_hang(),
        ScriptedReply::signal("Done.", "TERMINATE"),
    ];
    let model = ModelServer::with_replies(replies).await?;
    let collector = Collector::start().await?;
    let process_fleet = traced_fleet(&collector, &model).await?;
    let gate = Gate::new();
    let held = gate.clone();
    let tool = Tool::new("slow").effect(Effect::Idempotent).timeout(PATIENCE);
    let answer = move |call: &RecordedCall| ToolAnswer::After(held.clone(), call.arguments.clone());
    let tool_server = ToolServerBuilder::at(&process_fleet.nats.url()).await?.with(tool, answer).open().await?;
    let mut orchestrators = Vec::new();
    for _ in 0..3 {
        orchestrators.push(process_fleet.spawn("orchestrator").await?);
    }
    let (mut gateway, mut executor) = (process_fleet.spawn("gateway").await?, process_fleet.spawn("executor").await?);
    process_fleet.wait_for_tools(&["slow"]).await?;
    let edge = process_fleet.edge().await?;
    let client = edge.client().await?;
    client.start("s", "go").await?;
    let mut watching = client.watch("s").await?;
    watching.until_streamed("one ").await?;
    let mut second = process_fleet.spawn("gateway").await?;
    gateway.kill()?;
    orchestrators.remove(0).kill()?;
    soon("the tool runs", tool_server.wait_for_calls(1)).await?;
    let _executor = process_fleet.spawn("executor").await?;
    executor.kill()?;
    orchestrators.remove(0).kill()?;
    soon("the tool runs again", tool_server.wait_for_calls(2)).await?;
    gate.open();
    watching.until_streamed("this ").await?;
    let _third = process_fleet.spawn("gateway").await?;
    second.kill()?;
    let events = watching.to_end().await?;

    let trace = trace_of(&events)?;
    let ended = async || {
        let spans = collector.trace(&trace);
        named(&spans, "continuation.decide").len() == 2 && mistakes(&spans).is_empty()
    };
    eventually("a connected trace", ended).await.map_err(|error| {
        let spans = collector.trace(&trace);
        anyhow::anyhow!("{error}: {:?} {}", mistakes(&spans), drawn(&spans))
    })?;
    let spans = collector.trace(&trace);
    assert_eq!(named(&spans, "chat test").len(), 2, "{}", drawn(&spans));
    assert_eq!(named(&spans, "execute_tool slow").len(), 1, "{}", drawn(&spans));
    // What the killed ones could not send was sent by those who took over.
    let mut closers: Vec<&str> =
        named(&spans, "redelivered").iter().map(|span| &*span.texts["ailoop.closed_by"]).collect();
    closers.sort_unstable();
    assert_eq!(closers, ["executor", "gateway", "gateway"], "{}", drawn(&spans));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orchestrator_killed_after_the_last_commit_another_one_sends_the_turn() -> anyhow::Result<()> {
    const SESSIONS: usize = 12;
    let replies = (0..SESSIONS).map(|_| ScriptedReply::signal("Done.", "TERMINATE")).collect();
    let model = ModelServer::with_replies(replies).await?;
    let collector = Collector::start().await?;
    // Nothing is exported by itself: what comes was flushed before the acknowledgement.
    let mut environment = collector.environment();
    environment[1].1 = "600000".to_owned();
    let process_fleet = fleet_with(&environment, &model).await?;
    let _gateway = process_fleet.spawn("gateway").await?;
    let edge = process_fleet.edge().await?;
    let client = edge.client().await?;
    let mut last = process_fleet.spawn("orchestrator").await?;
    let mut traces = Vec::new();
    for number in 0..SESSIONS {
        let session = format!("s{number}");
        client.start(&session, "go").await?;
        // The end is published before the spans can have been exported.
        let events = client.watch(&session).await?.to_end().await?;
        last.kill()?;
        last = process_fleet.spawn("orchestrator").await?;
        traces.push(trace_of(&events)?);
    }
    for trace in &traces {
        let turn = async || {
            let spans = collector.trace(trace);
            !named(&spans, "invoke_agent e").is_empty() && named(&spans, "chat test").len() == 1
        };
        eventually("the spans of the turn", turn).await.map_err(|error| {
            let spans = collector.trace(trace);
            anyhow::anyhow!("{error}: {:?} {}", mistakes(&spans), drawn(&spans))
        })?;
    }
    Ok(())
}

/// Path, `authorization` and `x-langfuse-ingestion-version` of a request.
type Export = (String, String, String);

/// A collector for OTLP over HTTP on a free port: its address, and the requests that it got.
async fn http_collector(tasks: &mut JoinSet<()>) -> anyhow::Result<(String, Arc<Mutex<Vec<Export>>>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?.to_string();
    let exports = Arc::new(Mutex::new(Vec::new()));
    let received = exports.clone();
    let router = Router::new().fallback(move |uri: Uri, headers: HeaderMap| {
        let header =
            |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let export = (uri.path().to_owned(), header("authorization"), header("x-langfuse-ingestion-version"));
        received.lock().unwrap_or_else(PoisonError::into_inner).push(export);
        async { StatusCode::OK }
    });
    tasks.spawn(async move {
        // It ends with the task; an error of the listener shows as exports that are missing.
        let _ = axum::serve(listener, router).await;
    });
    Ok((address, exports))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn otlp_over_http_has_the_path_and_the_headers_that_langfuse_needs() -> anyhow::Result<()> {
    const AUTHORIZATION: &str = "Basic cGstbGYtMTpzay1sZi0yfj8=";
    let model = ModelServer::with_replies(vec![ScriptedReply::signal("Done.", "TERMINATE")]).await?;
    let mut tasks = JoinSet::new();
    let (address, exports) = http_collector(&mut tasks).await?;
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}/api/public/otel")),
        ("OTEL_EXPORTER_OTLP_HEADERS", format!("Authorization={AUTHORIZATION},x-langfuse-ingestion-version=4")),
        ("OTEL_METRICS_EXPORTER", "none".to_owned()),
        ("AILOOP__TELEMETRY__OTLP_PROTOCOL", "http".to_owned()),
        ("AILOOP__TELEMETRY__SAMPLE_RATIO", "1".to_owned()),
    ];
    let environment: Vec<_> = environment.map(|(name, value)| (name.to_owned(), value)).into();
    let process_fleet = fleet_with(&environment, &model).await?;
    let mut orchestrator = process_fleet.spawn("orchestrator").await?;
    let _gateway = process_fleet.spawn("gateway").await?;
    let edge = process_fleet.edge().await?;
    let client = edge.client().await?;
    client.start("s", "go").await?;
    client.watch("s").await?.to_end().await?;
    // A process sends its last metrics when it ends, if it sends any.
    orchestrator.terminate(PATIENCE).await?;

    let exports = exports.lock().unwrap_or_else(PoisonError::into_inner);
    let expected = ("/api/public/otel/v1/traces".to_owned(), AUTHORIZATION.to_owned(), "4".to_owned());
    assert!(!exports.is_empty() && exports.iter().all(|export| *export == expected), "{exports:?}");
    Ok(())
}

/// The beginning of a `traceparent` that names this span.
fn of(span: &Span) -> String {
    format!("00-{}-{}", span.trace, span.id)
}

fn drawn(spans: &[Span]) -> String {
    let line = |span: &Span| {
        let took = Duration::from_nanos(span.time.1.saturating_sub(span.time.0));
        format!("\n  {} {} {} < {} {took:?} {:?}", span.service, span.name, span.id, span.parent, span.texts)
    };
    spans.iter().map(line).collect()
}
