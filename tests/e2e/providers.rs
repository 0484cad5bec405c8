//! Failing providers, and gateways that are killed while they stream: every session ends, no provider is called before
//! its `retry-after`, and all costs are booked.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ailoop_tests::client::TestClient;
use ailoop_tests::fleet::{TestFleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::process_fleet::ProcessFleet;
use ailoop_tests::wait::{eventually, soon};
use contract::streams::Bucket;
use futures::future::try_join_all;
use serde_json::{Value, json};

/// Streams that run when their gateway is killed.
const STREAMS: usize = 100;
/// Nano-dollars of one reply of [`streamed`]: 10 tokens for a dollar per million, 5 for two.
const COST: u64 = 20_000;

fn number(name: &str, default: usize) -> usize {
    configuration::env(name).and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[allow(clippy::print_stderr, reason = "the figures of a long run")]
fn figures(line: &str) {
    eprintln!("{line}");
}

/// A reply in forty pieces, over two seconds.
fn streamed() -> ScriptedReply {
    (0..40)
        .fold(ScriptedReply::text(""), |reply, n| reply.and_text(&format!("{n} ")).and_delay(Duration::from_millis(50)))
        .usage(10, 5)
}

async fn account(process_fleet: &ProcessFleet) -> anyhow::Result<(u64, BTreeMap<String, u64>)> {
    let Some(found) = process_fleet.bus.transport().kv_get(Bucket::Limits, "budget.default.month").await? else {
        return Ok((0, BTreeMap::new()));
    };
    let found: Value = serde_json::from_slice(&found)?;
    let open = found["open"].as_object().into_iter().flatten();
    let open = open.map(|(call, open)| (call.clone(), open["nano_usd"].as_u64().unwrap_or(0))).collect();
    Ok((found["spent"]["nano_usd"].as_u64().unwrap_or(0), open))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_killed_during_a_hundred_streams_all_costs_are_booked() -> anyhow::Result<()> {
    let model = ModelServer::start(|_| streamed()).await?;
    let process_fleet =
        ProcessFleet::with(&[("test", &model.base_url())], &[("AILOOP__GATEWAY__CONCURRENCY", "128")]).await?;
    process_fleet.write_models(&json!({
        "default": "test",
        "providers": {"test": {"kind": "openai_chat", "base_url": model.base_url()}},
        "models": {"test": {"provider": "test", "max_output": 1000, "prices": {"input": 1.0, "output": 2.0}}},
        "budgets": [{"tenant": "*", "per": "month", "usd": 100.0}],
    }))?;
    let _others = (process_fleet.spawn("orchestrator").await?, process_fleet.spawn("orchestrator").await?);
    let mut first = process_fleet.spawn("gateway").await?;
    let edge = process_fleet.edge().await?;
    let client = edge.client().await?;
    let sessions: Vec<String> = (0..STREAMS).map(|n| format!("s{n:03}")).collect();
    try_join_all(sessions.iter().map(|session| client.start(session, "count"))).await?;
    soon("all of them stream", model.wait_for_requests(STREAMS)).await?;
    let (spent, reserved) = account(&process_fleet).await?;
    anyhow::ensure!(reserved.len() + usize::try_from(spent / COST)? == STREAMS, "each reserved once");
    let _second = process_fleet.spawn("gateway").await?;
    first.kill()?;
    // Streams that had ended before the kill are settled.
    let (settled, cut) = account(&process_fleet).await?;
    anyhow::ensure!(cut.len() > STREAMS / 2, "it died in the middle of them: {} were cut", cut.len());

    let events = try_join_all(sessions.iter().map(async |session| client.watch(session).await?.to_end().await)).await?;
    for (session, events) in sessions.iter().zip(&events) {
        let replies: Vec<&Value> =
            events.iter().filter(|event| event.topic == "message.ai_full_received").map(|event| &event.data).collect();
        anyhow::ensure!(replies.len() == 1, "{session} has {} replies", replies.len());
        anyhow::ensure!(
            replies[0]["text"].as_str().is_some_and(|text| text.trim_end().ends_with("38 39")),
            "{session}: half a reply"
        );
        judge::log(&process_fleet.bus, &key(session)?, 10).await?;
    }
    anyhow::ensure!(
        model.requests().len() == STREAMS + cut.len(),
        "{} requests, {} cut",
        model.requests().len(),
        cut.len()
    );
    eventually("no reservation is open", async || account(&process_fleet).await.is_ok_and(|(_, open)| open.is_empty()))
        .await?;
    let (spent, _) = account(&process_fleet).await?;
    let (replies, lost): (u64, u64) = (u64::try_from(STREAMS)? * COST, cut.values().sum());
    anyhow::ensure!(spent == replies + lost, "{spent} booked; {replies} for replies, {lost} for what was cut");
    figures(&format!(
        "{} of {STREAMS} streams were cut, {} had been settled ({settled} nano-dollars); {spent} booked: {replies} for \
         {STREAMS} replies, {lost} for the cut ones",
        cut.len(),
        STREAMS - cut.len()
    ));
    Ok(())
}

/// A random number that decides about the `nth` request of a call.
fn fate(session: &str, step: usize, nth: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    (session, step, nth).hash(&mut hasher);
    hasher.finish() % 100
}

/// Number of requests of each call, and the time from which it may be retried.
#[derive(Debug, Default)]
struct Ledger {
    calls: BTreeMap<(String, usize), (u32, Option<Instant>)>,
    too_early: Vec<String>,
    failed: usize,
}

fn unreliable(ledger: &Mutex<Ledger>, request: &RecordedRequest) -> ScriptedReply {
    let first = request.messages().iter().find(|message| message["role"] == "user");
    let session = first.and_then(|message| message["content"].as_str()).unwrap_or_default().to_owned();
    let step = request.messages().iter().filter(|message| message["role"] == "assistant").count();
    let mut ledger = ledger.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let call = ledger.calls.entry((session.clone(), step)).or_default();
    let (nth, not_before) = (call.0, call.1.take());
    call.0 += 1;
    let fate = fate(&session, step, nth);
    if (0..8).contains(&fate) {
        call.1 = Some(Instant::now() + Duration::from_secs(1));
    }
    if not_before.is_some_and(|at| Instant::now() < at) {
        ledger.too_early.push(format!("{session} {step} {nth}"));
    }
    ledger.failed += usize::from(fate < 30);
    let good = if step < 2 {
        ScriptedReply::signal("On I go.", "CONTINUE")
    } else {
        ScriptedReply::signal("All done.", "TERMINATE")
    };
    match fate {
        0..8 => ScriptedReply::status(429, "{}").header("retry-after", "1"),
        8..12 => ScriptedReply::status(500, "oops"),
        12..16 => ScriptedReply::status(503, "<html>busy</html>"),
        16..20 => ScriptedReply::hang(),
        20..24 => ScriptedReply::text("half a ").and_hang(),
        24..27 => ScriptedReply::text("half a ").and_break(),
        27..30 => ScriptedReply::text("").and_stop(),
        _ => good,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_with_a_third_of_requests_failing_complete() -> anyhow::Result<()> {
    let count = number("AILOOP_FAULTY_SESSIONS", 60);
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let (recorded, began) = (ledger.clone(), Instant::now());
    let model = ModelServer::start(move |request| unreliable(&recorded, request)).await?;
    let fleet = TestFleet::start(&[("test", &model.base_url())]).await?;
    let client: TestClient = fleet.client().await?;
    let options = json!({"streaming": {"first_byte": 2, "idle": 2}});
    let sessions: Vec<String> = (0..count).map(|n| format!("faulty-{n}")).collect();
    let ended = try_join_all(sessions.iter().map(async |session| {
        client.begin(session, session, &options).await?;
        let events = client.watch(session).await?.to_end().await?;
        let reason = events.last().map(|last| last.data["reason"].to_string()).unwrap_or_default();
        Ok::<_, anyhow::Error>((session, reason))
    }))
    .await?;
    let failed: Vec<_> = ended.iter().filter(|(_, reason)| reason != "\"completed\"").collect();
    anyhow::ensure!(failed.is_empty(), "not all were completed: {failed:?}");
    let needed = 3 * count;
    let requests = model.requests().len();
    let (too_early, failing) = {
        let ledger = ledger.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (ledger.too_early.clone(), ledger.failed)
    };
    anyhow::ensure!(too_early.is_empty(), "asked before its retry-after: {too_early:?}");
    anyhow::ensure!(requests < 3 * needed, "{requests} requests for {needed} replies");
    #[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
    let ratio = requests as f64 / needed as f64;
    figures(&format!(
        "{count} sessions completed in {:.1} s: {requests} requests for {needed} replies ({ratio:.2} each), {failing} of them \
         failed, none was made before its retry-after",
        began.elapsed().as_secs_f64(),
    ));
    fleet.end().await
}
