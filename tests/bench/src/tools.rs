//! Overhead of a tool call: from the commit of the reply that asks for it, over the tool's handler, to the
//! commit of its result, at an open rate, beside two raw round trips at the same rate on the same nats-server.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use async_nats::{Client, Message};
use futures::StreamExt;
use proto::StartSessionRequest;
use proto::sessions_client::SessionsClient;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tonic::transport::Channel;

use crate::fixture::{Fixture, FleetShape};
use crate::load::percentile;
use crate::paced_model::now_ns;
use crate::report::{self, Figure};
use crate::tool::{AT, ECHO};

/// Every commit, as the server is given it.
const LOG: &str = "ai_loop.log.>";
/// Prompt for two replies, the first of which calls the tool.
const PROMPT: &str = "Answer in 2 steps.";
/// Longest wait for the end of the last calls.
const REST_MAX: Duration = Duration::from_secs(20);
/// Share of the calls that may still be open at the end; an open rate that the fleet cannot keep would show here.
const OPEN_MAX: f64 = 0.001;

/// Options of the tools measurement.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ToolsOptions {
    /// Calls that begin each second, whatever became of those before
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// Seconds for which it is measured
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Seconds for which it runs before
    #[arg(long, default_value_t = 4)]
    warm_seconds: u64,
}

impl Default for ToolsOptions {
    fn default() -> Self {
        Self { rate: 200, seconds: 15, warm_seconds: 4 }
    }
}

/// Times of the events of one call, in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
struct CallTimes {
    opened: u64,
    handled: u64,
    committed: u64,
}

type Calls = Arc<Mutex<HashMap<String, CallTimes>>>;

/// Measures, prints and writes `tools.json`.
pub(crate) async fn run(plan: &ToolsOptions) -> anyhow::Result<()> {
    ailoop::install_crypto();
    let fixture = Fixture::start(FleetShape::PLAIN).await?;
    let figures = figures(&fixture, plan).await.with_context(|| fixture.warnings())?;
    report::write("tools.json", &figures)?;
    report::print(&report::table(&figures));
    Ok(())
}

/// Every figure of tool calls.
pub(crate) async fn figures(fixture: &Fixture, plan: &ToolsOptions) -> anyhow::Result<Vec<Figure>> {
    report::note(&format!("tools: {} calls a second", plan.rate));
    let client = connect(fixture).await?;
    let (warm, window) = (Duration::from_secs(plan.warm_seconds), Duration::from_secs(plan.seconds));
    let calls = Calls::default();
    let mut listening = JoinSet::new();
    let log = client.subscribe(LOG).await?;
    client.flush().await?;
    listening.spawn(listen(log, calls.clone()));
    let began = begin(fixture, plan.rate, warm + window).await?;
    let (from, to) = (began + nanos(warm), began + nanos(warm + window));
    let rest = Instant::now() + REST_MAX;
    let within = loop {
        let seen: Vec<CallTimes> = calls.lock().await.values().copied().collect();
        let within: Vec<CallTimes> = seen.into_iter().filter(|seen| (from..to).contains(&seen.opened)).collect();
        let open = within.iter().filter(|seen| seen.committed == 0).count();
        if open == 0 || Instant::now() > rest {
            ensure!(share(open, within.len()) <= OPEN_MAX, "{open} of {} calls have no result", within.len());
            break within;
        }
        sleep(Duration::from_millis(50)).await;
    };
    let wanted = f64::from(plan.rate) * window.as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    let rate = within.len() as f64 / window.as_secs_f64();
    ensure!(rate > 0.95 * wanted / window.as_secs_f64(), "the load fell behind: {rate:.0} calls a second");
    let floor = floor(&client, plan.rate, warm.min(Duration::from_secs(1)), window.min(Duration::from_secs(5))).await?;

    let done: Vec<CallTimes> = within.into_iter().filter(|seen| seen.committed > 0 && seen.handled > 0).collect();
    let of = |took: fn(&CallTimes) -> u64| sorted_ms(done.iter().map(took));
    let name = |what: &str, p: usize| format!("tools.{}_per_s.{what}_ms_p{p}", plan.rate);
    let whole = of(|seen| seen.committed.saturating_sub(seen.opened));
    let before = of(|seen| seen.handled.saturating_sub(seen.opened));
    let after = of(|seen| seen.committed.saturating_sub(seen.handled));
    let mut figures = Vec::new();
    for p in [50, 99] {
        let dispatch = Figure::new(name("dispatch", p), percentile(&whole, p), "ms");
        figures.push(dispatch.over(percentile(&floor, p)));
        figures.push(Figure::new(name("to_handler", p), percentile(&before, p), "ms"));
        figures.push(Figure::new(name("from_handler", p), percentile(&after, p), "ms"));
    }
    Ok(figures)
}

async fn connect(fixture: &Fixture) -> anyhow::Result<Client> {
    let options = async_nats::ConnectOptions::new().subscription_capacity(1 << 20);
    let urls = fixture.nats.url();
    Ok(options.connect(urls.split(',').collect::<Vec<_>>()).await?)
}

/// Begins sessions at an open rate; returns when the first one was to begin.
async fn begin(fixture: &Fixture, rate: u32, during: Duration) -> anyhow::Result<u64> {
    let mut channels: Vec<SessionsClient<Channel>> = Vec::new();
    for edge in fixture.edges.iter().cycle().take(8) {
        channels.push(SessionsClient::connect(edge.clone()).await?);
    }
    let mut ticks = interval(Duration::from_secs(1) / rate.max(1));
    // A late session is begun at once, so the rate does not fall.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (began, end) = (now_ns(), Instant::now() + during);
    let mut starts = JoinSet::new();
    for n in 0_usize.. {
        ticks.tick().await;
        if Instant::now() >= end {
            break;
        }
        let mut client = channels[n % channels.len()].clone();
        starts.spawn(async move {
            let session_id = uuid::Uuid::now_v7().simple().to_string();
            let start = StartSessionRequest {
                session_id: Some(session_id),
                prompt: Some(PROMPT.to_owned().into()),
                wait: Some(false),
                ..StartSessionRequest::default()
            };
            client.start_session(start).await.map(|_| ())
        });
        while let Some(started) = starts.try_join_next() {
            started??;
        }
    }
    while let Some(started) = starts.join_next().await {
        started??;
    }
    Ok(began)
}

/// Notes each commit in which a call opens or has its result.
async fn listen(mut log: async_nats::Subscriber, calls: Calls) {
    while let Some(message) = log.next().await {
        let at = now_ns();
        let (opens, ends) = (has(&message, b"\"type\":\"tool_call_opened\""), has(&message, RESULT));
        if !opens && !ends {
            continue;
        }
        let session = message.subject.split('.').nth(3).unwrap_or_default().to_owned();
        let mut calls = calls.lock().await;
        let seen = calls.entry(session).or_default();
        if opens {
            seen.opened = at;
        }
        if ends {
            seen.committed = at;
            seen.handled = handled(&message.payload).unwrap_or_default();
        }
    }
}

const RESULT: &[u8] = b"\"type\":\"tool_call.result_processed\"";

fn has(message: &Message, part: &[u8]) -> bool {
    message.payload.windows(part.len()).any(|window| window == part)
}

/// Reads the time at which the tool's handler ran from its result.
fn handled(payload: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(payload).ok()?;
    let (_, rest) = text.split_once(AT)?;
    let digits = rest.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())].parse().ok()
}

/// Two round trips, one after the other, at the same rate, to the tool's process.
async fn floor(client: &Client, rate: u32, warm: Duration, window: Duration) -> anyhow::Result<Vec<f64>> {
    report::note("tools: as often two raw round trips");
    let mut ticks = interval(Duration::from_secs(1) / rate.max(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (began, mut trips) = (Instant::now(), JoinSet::new());
    while began.elapsed() < warm + window {
        ticks.tick().await;
        let (client, counts) = (client.clone(), began.elapsed() >= warm);
        trips.spawn(async move {
            let began = now_ns();
            for _ in 0..2 {
                let answered = client.request(ECHO, "{}".into());
                timeout(REST_MAX, answered).await.context("an echo is lost")??;
            }
            anyhow::Ok(counts.then(|| now_ns().saturating_sub(began)))
        });
    }
    let mut took = Vec::new();
    while let Some(trip) = trips.join_next().await {
        took.extend(trip??);
    }
    Ok(sorted_ms(took.into_iter()))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
fn share(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
fn sorted_ms(ns: impl Iterator<Item = u64>) -> Vec<f64> {
    let mut ms: Vec<f64> = ns.map(|ns| ns as f64 / 1e6).collect();
    ms.sort_by(f64::total_cmp);
    ms
}
