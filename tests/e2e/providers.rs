//! Providers that fail, and gateways that die while they stream: every session ends, nobody is asked too early, and what it
//! cost is booked.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ailoop_tests::client::Client;
use ailoop_tests::crowd::Crowd;
use ailoop_tests::fleet::{Fleet, eventually, key, soon};
use ailoop_tests::judge;
use ailoop_tests::model::{Asked, ModelServer, Reply};
use contract::streams::Bucket;
use futures::future::try_join_all;
use serde_json::{Value, json};

/// Streams that are under way when their gateway dies.
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
fn streamed() -> Reply {
    (0..40)
        .fold(Reply::text(""), |reply, n| reply.and_text(&format!("{n} ")).and_delay(Duration::from_millis(50)))
        .usage(10, 5)
}

async fn account(crowd: &Crowd) -> anyhow::Result<(u64, BTreeMap<String, u64>)> {
    let Some(found) = crowd.bus.transport().kv_get(Bucket::Limits, "budget.default.month").await? else {
        return Ok((0, BTreeMap::new()));
    };
    let found: Value = serde_json::from_slice(&found)?;
    let open = found["open"].as_object().into_iter().flatten();
    let open = open.map(|(call, open)| (call.clone(), open["nano_usd"].as_u64().unwrap_or(0))).collect();
    Ok((found["spent"]["nano_usd"].as_u64().unwrap_or(0), open))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_dies_in_the_middle_of_a_hundred_streams() -> anyhow::Result<()> {
    let model = ModelServer::start(|_| streamed()).await?;
    let crowd = Crowd::with(&[("test", &model.base_url())], &[("AILOOP__GATEWAY__CONCURRENCY", "128")]).await?;
    crowd.write_models(&json!({
        "default": "test",
        "providers": {"test": {"kind": "openai_chat", "base_url": model.base_url()}},
        "models": {"test": {"provider": "test", "max_output": 1000, "prices": {"input": 1.0, "output": 2.0}}},
        "budgets": [{"tenant": "*", "per": "month", "usd": 100.0}],
    }))?;
    let _others = (crowd.spawn("orchestrator").await?, crowd.spawn("orchestrator").await?);
    let mut first = crowd.spawn("gateway").await?;
    let edge = crowd.edge().await?;
    let client = edge.client().await?;
    let sessions: Vec<String> = (0..STREAMS).map(|n| format!("s{n:03}")).collect();
    try_join_all(sessions.iter().map(|session| client.start(session, "count"))).await?;
    soon("all of them stream", model.asked_times(STREAMS)).await?;
    let (spent, reserved) = account(&crowd).await?;
    anyhow::ensure!(reserved.len() + usize::try_from(spent / COST)? == STREAMS, "each reserved once");
    let _second = crowd.spawn("gateway").await?;
    first.kill()?;
    // What had ended when it died was settled before.
    let (settled, cut) = account(&crowd).await?;
    anyhow::ensure!(cut.len() > STREAMS / 2, "it died in the middle of them: {} were cut", cut.len());

    let seen = try_join_all(sessions.iter().map(async |session| client.watch(session).await?.to_end().await)).await?;
    for (session, seen) in sessions.iter().zip(&seen) {
        let replies: Vec<&Value> =
            seen.iter().filter(|seen| seen.topic == "message.ai_full_received").map(|seen| &seen.data).collect();
        anyhow::ensure!(replies.len() == 1, "{session} has {} replies", replies.len());
        anyhow::ensure!(
            replies[0]["text"].as_str().is_some_and(|text| text.trim_end().ends_with("38 39")),
            "{session}: half a reply"
        );
        judge::log(&crowd.bus, &key(session)?, 10).await?;
    }
    anyhow::ensure!(model.asked().len() == STREAMS + cut.len(), "{} requests, {} cut", model.asked().len(), cut.len());
    eventually("no reservation is open", async || account(&crowd).await.is_ok_and(|(_, open)| open.is_empty())).await?;
    let (spent, _) = account(&crowd).await?;
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

/// What a provider does to the `nth` request of a call.
fn fate(session: &str, step: usize, nth: u32) -> u64 {
    let mut hasher = DefaultHasher::new();
    (session, step, nth).hash(&mut hasher);
    hasher.finish() % 100
}

/// When each call may be made again, and how often it was made.
#[derive(Debug, Default)]
struct Ledger {
    calls: BTreeMap<(String, usize), (u32, Option<Instant>)>,
    too_early: Vec<String>,
    failed: usize,
}

fn unreliable(ledger: &Mutex<Ledger>, asked: &Asked) -> Reply {
    let first = asked.messages().iter().find(|message| message["role"] == "user");
    let session = first.and_then(|message| message["content"].as_str()).unwrap_or_default().to_owned();
    let step = asked.messages().iter().filter(|message| message["role"] == "assistant").count();
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
    let good = if step < 2 { Reply::signal("On I go.", "CONTINUE") } else { Reply::signal("All done.", "TERMINATE") };
    match fate {
        0..8 => Reply::status(429, "{}").header("retry-after", "1"),
        8..12 => Reply::status(500, "oops"),
        12..16 => Reply::status(503, "<html>busy</html>"),
        16..20 => Reply::hang(),
        20..24 => Reply::text("half a ").and_hang(),
        24..27 => Reply::text("half a ").and_break(),
        27..30 => Reply::text("").and_stop(),
        _ => good,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_end_though_a_third_of_all_requests_fails() -> anyhow::Result<()> {
    let count = number("AILOOP_FAULTY_SESSIONS", 60);
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let (heard, began) = (ledger.clone(), Instant::now());
    let model = ModelServer::start(move |asked| unreliable(&heard, asked)).await?;
    let fleet = Fleet::start(&[("test", &model.base_url())]).await?;
    let client: Client = fleet.client().await?;
    let options = json!({"streaming": {"first_byte": 2, "idle": 2}});
    let sessions: Vec<String> = (0..count).map(|n| format!("faulty-{n}")).collect();
    let ended = try_join_all(sessions.iter().map(async |session| {
        client.begin(session, session, &options).await?;
        let seen = client.watch(session).await?.to_end().await?;
        let reason = seen.last().map(|last| last.data["reason"].to_string()).unwrap_or_default();
        Ok::<_, anyhow::Error>((session, reason))
    }))
    .await?;
    let failed: Vec<_> = ended.iter().filter(|(_, reason)| reason != "\"completed\"").collect();
    anyhow::ensure!(failed.is_empty(), "not all were completed: {failed:?}");
    let needed = 3 * count;
    let asked = model.asked().len();
    let (too_early, failing) = {
        let ledger = ledger.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (ledger.too_early.clone(), ledger.failed)
    };
    anyhow::ensure!(too_early.is_empty(), "asked before its retry-after: {too_early:?}");
    anyhow::ensure!(asked < 3 * needed, "{asked} requests for {needed} replies");
    #[allow(clippy::cast_precision_loss, reason = "a ratio for people")]
    let ratio = asked as f64 / needed as f64;
    figures(&format!(
        "{count} sessions completed in {:.1} s: {asked} requests for {needed} replies ({ratio:.2} each), {failing} of them \
         failed, none was made before its retry-after",
        began.elapsed().as_secs_f64(),
    ));
    fleet.end().await
}
