//! Cost of a step with many sessions in the log, and with a long transcript.

use std::time::Duration;

use anyhow::Context;
use bus::Bus;
use contract::SessionId;
use futures::{StreamExt, TryStreamExt};
use proto::StartSessionRequest;
use proto::sessions_client::SessionsClient;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::compacted;
use crate::fixture::{Fixture, FleetShape, Used};
use crate::idle::{COPIES, Idle, turns};
use crate::load::{self, percentile};
use crate::nats::Traffic;
use crate::report::{self, Figure};
use crate::requests;

/// Sessions at the same time while a step is measured.
const CONCURRENCY: usize = 16;
/// Sessions with long transcripts.
const LONG: usize = 8;
/// The turns of each, and their steps: two messages each.
const TURNS: usize = 8;
const STEPS: usize = 130;
/// Messages of a transcript, and the steps between which it has about as many. All but the first take a page of the log,
/// which is 32 steps, so that each pays for the snapshot and the archiving of one page. No turn ends between them.
/// Later ones are compared with those that have a suffix for the names of such figures.
const LENGTHS: [(&str, [usize; 2], Option<&str>); 4] = [
    ("messages_20", [3, 18], Some("")),
    ("messages_100", [34, 66], Some("_since_100")),
    ("messages_500", [226, 258], None),
    ("messages_2000", [984, 1_016], None),
];
/// Number of rounds in which they are run: a few steps use less CPU than the kernel counts exactly.
const ROUNDS: usize = 8;
/// Seconds without an input after which a log is compacted.
const COMPACT_AFTER_SECONDS: u64 = 60;

/// Options of the growth measurement.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct GrowthOptions {
    /// Idle sessions in the log, one level each
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000])]
    sessions: Vec<usize>,
    /// Seconds for which each level is measured
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Seconds between filling and measuring, in which the server writes down, sweeps up and gives memory back
    #[arg(long, default_value_t = 60)]
    rest: u64,
    /// Only the idle sessions, and not the transcripts
    #[arg(long)]
    only_idle: bool,
}

/// Measures, prints and writes `growth.json`.
pub(crate) async fn run(plan: &GrowthOptions) -> anyhow::Result<()> {
    ailoop::install_crypto();
    let mut figures = Vec::new();
    // Shorter than it takes to copy the sessions, so that each is compacted as soon as its timer is due.
    let shape = FleetShape { compact_after: Some(COMPACT_AFTER_SECONDS), ..FleetShape::PLAIN };
    if !plan.only_idle {
        report::note("transcripts");
        let fixture = Fixture::start(shape).await?;
        figures.extend(transcripts(&fixture).await.with_context(|| fixture.warnings())?);
        // The rest takes many minutes.
        report::print(&report::table(&figures));
    }
    // A server of its own: what the transcripts left in its memory is not that of idle sessions.
    let fixture = Fixture::start(shape).await?;
    figures.extend(sessions(&fixture, plan).await.with_context(|| fixture.warnings())?);
    report::write("growth.json", &figures)?;
    report::print(&report::table(&figures));
    Ok(())
}

/// A step among more and more idle sessions.
async fn sessions(fixture: &Fixture, plan: &GrowthOptions) -> anyhow::Result<Vec<Figure>> {
    let config = bus::NatsConfig { url: fixture.nats.url(), ..Default::default() };
    let bus = Bus::connect(&config).await?;
    let mut client = SessionsClient::connect(fixture.edges[0].clone()).await?;
    let idle = Idle::of(&bus, &mut client).await?;
    let (mut figures, mut there) = (Vec::new(), 0);
    let contents = fixture.nats.contents().await?;
    let empty = fixture.used()?.nats.rss_mb;
    for &count in &plan.sessions {
        report::note(&format!("{count} idle sessions"));
        futures::stream::iter(there..count)
            .map(|n| idle.copy(&bus, n))
            .buffer_unordered(COPIES)
            .try_collect::<Vec<()>>()
            .await?;
        there = count;
        sleep(Duration::from_secs(plan.rest)).await;
        let at_rest = fixture.used()?.nats.rss_mb;
        let (warm, window) = (Duration::from_secs(3), Duration::from_secs(plan.seconds));
        let measured = load::run(fixture, CONCURRENCY, warm, window).await?;
        let name = |what: &str| format!("loop.growth.sessions_{count}.{what}");
        let [before, after] = &measured.used;
        let cpu = |of: fn(&Used) -> f64| {
            #[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
            let steps = measured.step_ms.len() as f64;
            (of(after) - of(before)) * 1e3 / steps
        };
        figures.push(Figure::new(name("cpu_s_per_1000_steps"), cpu(report::counted), "s"));
        figures.push(Figure::new(name("nats_cpu_s_per_1000_steps"), cpu(|used| used.nats.cpu_s), "s"));
        figures.push(Figure::new(name("ms_per_step_p50"), percentile(&measured.step_ms, 50), "ms"));
        let services = after.services.iter().map(|(_, usage)| usage.rss_mb).sum();
        figures.push(Figure::new(name("rss_mb"), services, "MiB"));
        figures.push(Figure::new(name("nats_rss_mb_at_rest"), at_rest, "MiB"));
        figures.push(Figure::new(name("nats_rss_mb"), after.nats.rss_mb, "MiB"));
        let woken = Idle::wake(&client, count, 0).await?;
        figures.push(Figure::new(name("wake_ms_p50"), percentile(&woken, 50), "ms"));
        figures.push(Figure::new(name("wake_ms_p99"), percentile(&woken, 99), "ms"));
    }
    let rest = Duration::from_secs(plan.rest);
    figures.extend(compacted::measure(fixture, &bus, &client, &idle, there, contents, rest).await?);
    figures.push(Figure::new("loop.growth.nats_rss_mb_before".to_owned(), empty, "MiB"));
    figures.push(Figure::new("loop.growth.slots_per_idle_session".to_owned(), idle.slots(), "1"));
    bus.close().await;
    Ok(figures)
}

/// Resource usage and traffic after so many steps.
#[derive(Debug, Clone)]
struct Mark {
    steps: usize,
    used: Used,
    traffic: Traffic,
    /// Bytes of requests that the model server has received.
    requested: u64,
}

/// CPU of all counted processes, that of the server, and bytes to the server, for some steps.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    steps: usize,
    cpu_s: f64,
    bytes: u64,
    requested: u64,
}

impl Cost {
    fn add(&mut self, [before, after]: [&Mark; 2]) {
        self.steps += after.steps - before.steps;
        self.cpu_s += report::counted(&after.used) - report::counted(&before.used);
        self.bytes += after.traffic.in_bytes - before.traffic.in_bytes;
        self.requested += after.requested - before.requested;
    }

    #[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    fn cpu_s_per_1000_steps(self) -> f64 {
        self.cpu_s * 1e3 / self.steps.max(1) as f64
    }

    fn per_step(self, bytes: u64) -> usize {
        usize::try_from(bytes).unwrap_or(usize::MAX) / self.steps.max(1)
    }
}

/// A step of transcripts of several lengths, and what it costs to send the request alone.
async fn transcripts(fixture: &Fixture) -> anyhow::Result<Vec<Figure>> {
    let mut costs = [Cost::default(); LENGTHS.len()];
    for round in 1..=ROUNDS {
        report::note(&format!("transcripts, round {round} of {ROUNDS}"));
        let marks = long_sessions(fixture).await?;
        for (cost, [before, after]) in costs.iter_mut().zip(&marks) {
            cost.add([before, after]);
        }
    }
    let (mut figures, mut baselines) = (Vec::new(), Vec::new());
    for ((length, _, baseline), cost) in LENGTHS.iter().zip(costs) {
        let request = cost.per_step(cost.requested);
        let sending = requests::cpu_s_per_1000(&fixture.model_url, LONG, request).await?;
        let (cpu, stored) = (cost.cpu_s_per_1000_steps(), cost.per_step(cost.bytes));
        let mut figure = |what: &str, value, unit| {
            figures.push(Figure::new(format!("loop.growth.transcript.{length}.{what}"), value, unit));
        };
        #[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
        let [request, stored] = [request, stored].map(|bytes| bytes as f64);
        figure("cpu_s_per_1000_steps", cpu, "s");
        figure("request_cpu_s_per_1000_steps", sending, "s");
        figure("request_bytes", request, "B");
        figure("nats_bytes_per_step", stored, "B");
        let own_cpu = cpu - sending;
        baselines.extend(baseline.map(|suffix| (suffix, own_cpu, stored)));
        for (suffix, baseline_cpu, baseline_stored) in &baselines {
            figure(&format!("cpu_without_request_growth{suffix}"), own_cpu / baseline_cpu, "x");
            figure(&format!("nats_bytes_growth{suffix}"), stored / baseline_stored, "x");
        }
    }
    Ok(figures)
}

/// Runs long sessions side by side; marks where the last of them is at the steps that count.
async fn long_sessions(fixture: &Fixture) -> anyhow::Result<Vec<[Mark; 2]>> {
    let mut client = SessionsClient::connect(fixture.edges[0].clone()).await?;
    let (mut sessions, mut positions) = (JoinSet::new(), Vec::new());
    let part = format!("Count the words of {STEPS} parts.");
    for _ in 0..LONG {
        let id = SessionId::new(&uuid::Uuid::now_v7().simple().to_string())?;
        let start = StartSessionRequest {
            session_id: Some(id.to_string()),
            agent: Some("long".to_owned()),
            prompt: Some(part.clone().into()),
            interactive: Some(true),
            ..StartSessionRequest::default()
        };
        client.start_session(start).await?;
        let (steps_done, position) = watch::channel(0);
        positions.push(position);
        let mut client = client.clone();
        let part = part.clone();
        sessions.spawn(async move { turns(&mut client, &id, TURNS, &part, &steps_done).await });
    }
    let mut marks = Vec::new();
    for (_, [begin, end], _) in LENGTHS {
        marks.push([mark(fixture, &mut positions, begin).await?, mark(fixture, &mut positions, end).await?]);
    }
    while let Some(ended) = sessions.join_next().await {
        ended??;
    }
    Ok(marks)
}

/// Waits until all sessions are at a step, and looks at what was used until then.
async fn mark(fixture: &Fixture, positions: &mut [watch::Receiver<usize>], at: usize) -> anyhow::Result<Mark> {
    for position in positions.iter_mut() {
        position.wait_for(|steps| *steps >= at).await?;
    }
    let steps = positions.iter().map(|position| *position.borrow()).sum();
    let requested = reqwest::get(format!("{}/received", fixture.model_url)).await?.text().await?.parse()?;
    Ok(Mark { steps, used: fixture.used()?, traffic: fixture.nats.traffic().await?, requested })
}
