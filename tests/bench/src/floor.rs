//! The floor: as many raw messages as a step needed at one commit, with as many in flight, on the same nats-server, by a
//! plain client. The numbers are in a file and stay, so that a step with fewer messages shows as a gain.
//!
//! No deciding, no consumers, no HTTP, no clients of an edge: what is left is what the messages themselves cost.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use async_nats::Client;
use async_nats::jetstream::{self, stream};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::anatomy::MessageKind;
use crate::fixture::Fixture;
use crate::load::{percentile, sorted_ms};
use crate::process::{announce, usage_of};

/// The stream of raw messages.
const STREAM: &str = "BENCH_FLOOR";
/// Subjects of one worker: a message replaces the one before on its subject, as acked items go.
const SUBJECTS: usize = 64;
/// A request that another client answers.
const ASK: &str = "bench_ask";
/// A message that another client receives.
const TELL: &str = "bench_tell";
/// Requests that are answered at the same time.
const ANSWERED_AT_ONCE: usize = 64;

/// Messages of a step, and the number of steps that run at the same time.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Raw {
    nats: String,
    concurrency: usize,
    replicas: usize,
    warm_ms: u64,
    window_ms: u64,
    appends: usize,
    append_bytes: usize,
    reads: usize,
    asks: usize,
    tells: usize,
    tell_bytes: usize,
}

/// Measurement by the raw client.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct RawCounts {
    steps: u64,
    ms_per_step_p50: f64,
    ms_per_step_p99: f64,
    window_s: f64,
}

/// The floor of a level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Floor {
    pub(crate) ms_per_step_p50: f64,
    pub(crate) ms_per_step_p99: f64,
    /// Steps' worth of messages.
    pub(crate) steps_per_s: f64,
    /// CPU seconds of client and nats-server.
    pub(crate) cpu_s_per_1000_steps: f64,
    /// CPU seconds of the nats-server alone.
    pub(crate) nats_cpu_s_per_1000_steps: f64,
}

/// The messages of a step at one commit, by kind.
#[derive(Debug, Deserialize)]
pub(crate) struct FloorMessages {
    /// The commit at which they were counted.
    pub(crate) commit: String,
    stored: KindCount,
    server_answers: KindCount,
    client_answers: KindCount,
    core: KindCount,
}

/// Messages of one kind.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct KindCount {
    /// Number of these messages per step.
    pub(crate) per_step: f64,
    /// Mean bytes of one, without headers.
    pub(crate) bytes: f64,
}

impl FloorMessages {
    pub(crate) fn read() -> anyhow::Result<Self> {
        serde_json::from_str(include_str!("../floor.json")).context("floor.json")
    }

    pub(crate) fn of(&self, kind: MessageKind) -> KindCount {
        match kind {
            MessageKind::Append => self.stored,
            MessageKind::Read => self.server_answers,
            MessageKind::Ask => self.client_answers,
            MessageKind::Tell => self.core,
        }
    }
}

/// The numbers of messages that stand for a step, rounded.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
pub(crate) fn of(
    messages: &FloorMessages,
    nats: String,
    replicas: usize,
    concurrency: usize,
    warm: Duration,
    window: Duration,
) -> Raw {
    let whole = |number: f64| number.round() as usize;
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    Raw {
        nats,
        concurrency,
        replicas,
        warm_ms: millis(warm),
        window_ms: millis(window),
        appends: whole(messages.stored.per_step),
        append_bytes: whole(messages.stored.bytes),
        reads: whole(messages.server_answers.per_step),
        asks: whole(messages.client_answers.per_step),
        tells: whole(messages.core.per_step),
        tell_bytes: whole(messages.core.bytes),
    }
}

/// Starts a process that sends the messages, and measures what it and the server use.
pub(crate) async fn run(fixture: &Fixture, raw: &Raw) -> anyhow::Result<Floor> {
    let numbers = [
        u64::try_from(raw.concurrency)?,
        u64::try_from(raw.replicas)?,
        raw.warm_ms,
        raw.window_ms,
        u64::try_from(raw.appends)?,
        u64::try_from(raw.append_bytes)?,
        u64::try_from(raw.reads)?,
        u64::try_from(raw.asks)?,
        u64::try_from(raw.tells)?,
        u64::try_from(raw.tell_bytes)?,
    ];
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("raw").arg(&raw.nats).args(numbers.map(|number| number.to_string()));
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let id = child.id().context("the raw client ended at once")?;
    let mut lines = BufReader::new(child.stdout.take().context("no output")?).lines();
    lines.next_line().await?.context("the raw client does not begin")?;
    let before = (usage_of(id)?.cpu_s, fixture.nats.usage()?.cpu_s);
    let counts = lines.next_line().await?.context("the raw client prints no result")?;
    let after = (usage_of(id)?.cpu_s, fixture.nats.usage()?.cpu_s);
    drop(child);
    let counts: RawCounts = serde_json::from_str(&counts)?;
    ensure!(counts.steps > 0, "the raw client completed no step");
    #[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    let steps = counts.steps as f64;
    let per_1000 = |seconds: f64| seconds * 1e3 / steps;
    Ok(Floor {
        ms_per_step_p50: counts.ms_per_step_p50,
        ms_per_step_p99: counts.ms_per_step_p99,
        steps_per_s: steps / counts.window_s,
        cpu_s_per_1000_steps: per_1000(after.0 - before.0 + after.1 - before.1),
        nats_cpu_s_per_1000_steps: per_1000(after.1 - before.1),
    })
}

#[derive(Debug, Default)]
struct Record {
    steps: Mutex<Vec<(Instant, Duration)>>,
    stop: AtomicBool,
}

/// The raw client: announces the begin of the measurement and its result, then waits until it is killed.
pub(crate) async fn raw(raw: Raw) -> anyhow::Result<()> {
    let (client, other) = (connect(&raw.nats).await?, connect(&raw.nats).await?);
    let context = jetstream::new(client.clone());
    let stream = stream::Config {
        name: STREAM.to_owned(),
        subjects: vec![format!("{STREAM}.>")],
        max_messages_per_subject: 1,
        allow_direct: true,
        num_replicas: raw.replicas,
        ..stream::Config::default()
    };
    context.get_or_create_stream(stream).await?;
    let (asks, tells) = (other.subscribe(ASK).await?, other.subscribe(TELL).await?);
    let mut others = JoinSet::new();
    others.spawn(asks.for_each_concurrent(ANSWERED_AT_ONCE, move |message| {
        let other = other.clone();
        async move {
            if let Some(reply) = message.reply {
                // A lost answer shows as a request that fails.
                let _ = other.publish(reply, message.payload).await;
            }
        }
    }));
    others.spawn(tells.for_each(|_| std::future::ready(())));

    let record = Arc::new(Record::default());
    let mut workers = JoinSet::new();
    for number in 0..raw.concurrency {
        workers.spawn(work(raw.clone(), number, client.clone(), context.clone(), record.clone()));
    }
    sleep(Duration::from_millis(raw.warm_ms)).await;
    let began = Instant::now();
    announce("counting");
    sleep(Duration::from_millis(raw.window_ms)).await;
    let ended = Instant::now();
    record.stop.store(true, Ordering::Relaxed);
    let ms = {
        let steps = record.steps.lock().unwrap_or_else(PoisonError::into_inner);
        sorted_ms(steps.iter().filter(|(at, _)| *at > began && *at <= ended).map(|(_, took)| *took))
    };
    let counts = RawCounts {
        steps: u64::try_from(ms.len())?,
        ms_per_step_p50: percentile(&ms, 50),
        ms_per_step_p99: percentile(&ms, 99),
        window_s: (ended - began).as_secs_f64(),
    };
    announce(&serde_json::to_string(&counts)?);
    while let Some(worked) = workers.join_next().await {
        worked??;
    }
    // The process is looked at before it is ended.
    std::future::pending().await
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    let servers: Vec<&str> = url.split(',').collect();
    Ok(async_nats::ConnectOptions::new().subscription_capacity(1 << 20).connect(servers).await?)
}

/// Steps one after the other; within a step what is answered is awaited before the next, as a step's parts are.
async fn work(
    raw: Raw,
    number: usize,
    client: Client,
    context: jetstream::Context,
    record: Arc<Record>,
) -> anyhow::Result<()> {
    let body = |bytes: usize| bytes::Bytes::from(vec![b'x'; bytes]);
    let (append, tell) = (body(raw.append_bytes), body(raw.tell_bytes));
    let subject = |n: usize| format!("{STREAM}.{number}.{}", n % SUBJECTS);
    let mut count = 0;
    while !record.stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        for _ in 0..raw.appends {
            count += 1;
            context.publish(subject(count), append.clone()).await?.await?;
        }
        for _ in 0..raw.reads {
            let read = format!("$JS.API.DIRECT.GET.{STREAM}.{}", subject(count));
            client.request(read, bytes::Bytes::new()).await?;
        }
        for _ in 0..raw.asks {
            client.request(ASK, tell.clone()).await?;
        }
        for _ in 0..raw.tells {
            client.publish(TELL, tell.clone()).await?;
        }
        let ended = Instant::now();
        record.steps.lock().unwrap_or_else(PoisonError::into_inner).push((ended, ended - began));
    }
    Ok(())
}
