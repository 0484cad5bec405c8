//! A turn has one trace: from the request of the client through all processes to the model server and the tool.

use std::collections::BTreeSet;

use ailoop_tests::model::{ModelServer, ScriptedReply};
use ailoop_tests::otlp::{Collector, Span};
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::tool_server::ToolServer;
use ailoop_tests::wait::eventually;
use serde_json::json;

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
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
    let environment = collector.environment();
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (&**name, &**value)).collect();
    let process_fleet = ProcessFleet::with(&[("test", &model.base_url())], &environment).await?;
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

    let trace = events[2].trace_id.clone();
    assert_eq!(trace.len(), 32, "{:?}", events[2]);
    for event in &events {
        assert_eq!(event.trace_id, trace, "{}", event.topic);
    }
    let expected = [("session.start", 1), ("chat test", 3), ("execute_tool echo", 1), ("execute_tool mark", 1)];
    let complete = |spans: &[Span]| {
        let steps: BTreeSet<&str> =
            named(spans, "invoke_agent e").iter().map(|span| &*span.texts["ailoop.step"]).collect();
        steps == BTreeSet::from(["1", "2", "3"])
            && expected.iter().all(|(name, count)| named(spans, name).len() == *count)
    };
    eventually("every span of the turn", async || {
        complete(&collector.trace(&trace)) && connected(&collector.trace(&trace))
    })
    .await
    .map_err(|error| anyhow::anyhow!("{error}: {}", drawn(&collector.trace(&trace))))?;
    let spans = collector.trace(&trace);
    let roots: Vec<&str> = spans.iter().filter(|span| span.parent.is_empty()).map(|span| &*span.name).collect();
    assert_eq!(roots, ["session.start"], "{}", drawn(&spans));

    // The `traceparent` that models and tools get names the span of their call.
    for request in model.requests() {
        let parent = request.header("traceparent").unwrap_or_default().to_owned();
        assert!(named(&spans, "chat test").iter().any(|span| of(span) == parent[..52]), "{parent}: {}", drawn(&spans));
    }
    for call in tool_server.calls() {
        let span = named(&spans, &format!("execute_tool {}", call.tool))[0];
        assert_eq!(of(span), call.traceparent[..52]);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_of_two_orchestrators_have_one_trace_each() -> anyhow::Result<()> {
    const SESSIONS: usize = 6;
    let script =
        || vec![ScriptedReply::calls(&[("echo", json!({"n": 1}))]), ScriptedReply::signal("Done.", "TERMINATE")];
    let model = ModelServer::with_replies((0..SESSIONS).flat_map(|_| script()).collect()).await?;
    let collector = Collector::start().await?;
    let environment = collector.environment();
    let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (&**name, &**value)).collect();
    let process_fleet = ProcessFleet::with(&[("test", &model.base_url())], &environment).await?;
    let _workshop = ToolServer::plain(&process_fleet.nats.url()).await?;
    let mut services = Vec::new();
    for service in ["orchestrator", "orchestrator", "gateway", "executor"] {
        services.push(process_fleet.spawn(service).await?);
    }
    process_fleet.wait_for_tools(&["echo", "mark"]).await?;
    let edge = process_fleet.edge().await?;
    let client = edge.client().await?;
    for n in 0..SESSIONS {
        // One after the other, so that each session gets its own part of the script.
        let session = format!("s{n}");
        client.start(&session, "go").await?;
        let events = client.watch(&session).await?.to_end().await?;
        let trace = events[2].trace_id.clone();
        assert!(trace.len() == 32 && events.iter().all(|event| event.trace_id == trace), "{session}: {events:?}");
        eventually("every span of the turn", async || {
            let spans = collector.trace(&trace);
            ["turn e", "execute_tool echo"].iter().all(|name| named(&spans, name).len() == 1)
                // The edge composes before it accepts the start, and the loop when it begins.
                && ["chat test", "compose default"].iter().all(|name| named(&spans, name).len() == 2)
                && connected(&spans)
        })
        .await
        .map_err(|error| anyhow::anyhow!("{session}: {error}: {}", drawn(&collector.trace(&trace))))?;
        // A watch is a separate request of the client.
        let is_stray = |span: &Span| span.trace != trace && span.service != "edge";
        let strays: Vec<Span> = collector.session(&session).into_iter().filter(is_stray).collect();
        assert!(strays.is_empty(), "{session} has spans of another trace: {}", drawn(&strays));
        let spans = collector.trace(&trace);
        let (from, to) = named(&spans, "turn e")[0].time;
        for call in named(&spans, "chat test").into_iter().chain(named(&spans, "execute_tool echo")) {
            assert!(from <= call.time.0 + MILLI && call.time.1 <= to + MILLI, "{session}: {}", drawn(&spans));
        }
    }
    Ok(())
}

/// The log counts in milliseconds.
const MILLI: u64 = 1_000_000;

/// Whether every parent is a span of the trace.
fn connected(spans: &[Span]) -> bool {
    let ids: BTreeSet<&str> = spans.iter().map(|span| &*span.id).collect();
    spans.iter().all(|span| span.parent.is_empty() || ids.contains(&*span.parent))
}

/// The beginning of a `traceparent` that names this span.
fn of(span: &Span) -> String {
    format!("00-{}-{}", span.trace, span.id)
}

fn drawn(spans: &[Span]) -> String {
    let line =
        |span: &Span| format!("\n  {} {} {} < {} {:?}", span.service, span.name, span.id, span.parent, span.texts);
    spans.iter().map(line).collect()
}
