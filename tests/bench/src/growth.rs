//! Cost of a step with many sessions in the log, and with a long transcript.

use std::time::Duration;

use anyhow::{Context, ensure};
use bus::Bus;
use bus::transport::ReadMany;
use bytes::Bytes;
use contract::commit::SessionSummary;
use contract::event::Topic;
use contract::limits::IDLE_MAX;
use contract::streams::Stream;
use contract::subject::{self, SessionKey};
use contract::{SessionId, TenantId, Timestamp};
use futures::{StreamExt, TryStreamExt};
use proto::sessions_client::SessionsClient;
use proto::{SendRequest, StartRequest, WatchRequest};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;

use crate::fixture::{Fixture, FleetShape, Used};
use crate::load::{self, percentile, sorted_ms};
use crate::nats::Traffic;
use crate::report::{self, Figure};
use crate::requests;

/// Copies under way at the same time.
const COPIES: usize = 512;
/// Sessions at the same time while a step is measured.
const CONCURRENCY: usize = 16;
/// Idle sessions that are woken, and how many at the same time.
const WOKEN: (usize, usize) = (200, 4);
/// Sessions with long transcripts.
const LONG: usize = 8;
/// The turns of each, and their steps: two messages each.
const TURNS: usize = 8;
const STEPS: usize = 130;
/// Messages of a transcript, and the steps between which it has about as many.
const LENGTHS: [(&str, [usize; 2]); 3] =
    [("messages_20", [3, 18]), ("messages_500", [236, 258]), ("messages_2000", [989, 1_011])];
/// How often they are run: a few steps use less CPU than the kernel counts exactly.
const ROUNDS: usize = 8;
/// The number of the session that is copied.
const TEMPLATE: usize = 9_999_999_999;

/// Options of the growth measurement.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct GrowthOptions {
    /// Idle sessions in the log, one level each
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000])]
    sessions: Vec<usize>,
    /// How long each level is measured
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// Seconds between filling and measuring, in which the server writes down, sweeps up and gives memory back
    #[arg(long, default_value_t = 60)]
    rest: u64,
}

/// Measures, prints and writes `growth.json`.
pub(crate) async fn run(plan: &GrowthOptions) -> anyhow::Result<()> {
    ailoop::install_crypto();
    let mut figures = Vec::new();
    let fixture = Fixture::start(FleetShape::PLAIN).await?;
    let result = async {
        report::note("transcripts");
        figures.extend(transcripts(&fixture).await?);
        figures.extend(sessions(&fixture, plan).await?);
        anyhow::Ok(())
    };
    result.await.with_context(|| fixture.warnings())?;
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
        let woken = Idle::wake(&client, count).await?;
        figures.push(Figure::new(name("wake_ms_p50"), percentile(&woken, 50), "ms"));
        figures.push(Figure::new(name("wake_ms_p99"), percentile(&woken, 99), "ms"));
    }
    figures.push(Figure::new("loop.growth.nats_rss_mb_before".to_owned(), empty, "MiB"));
    figures.push(Figure::new("loop.growth.slots_per_idle_session".to_owned(), idle.slots(), "1"));
    bus.close().await;
    Ok(figures)
}

/// A session that had a turn and waits for the next one, to be copied.
struct Idle {
    id: SessionId,
    log: Vec<(u64, Bytes)>,
    summary: SessionSummary,
}

impl Idle {
    async fn of(bus: &Bus, client: &mut SessionsClient<Channel>) -> anyhow::Result<Self> {
        let id = copied(TEMPLATE);
        let start = StartRequest {
            session_id: id.to_string(),
            prompt: "Count the words of each part.".to_owned(),
            interactive: true,
            ..StartRequest::default()
        };
        client.start(start).await?;
        turns(client, &id, 1, "", &watch::channel(0).0).await?;
        let key = key(&id);
        // The end of the turn is published after its commit; the line of the index follows.
        sleep(Duration::from_secs(1)).await;
        let ReadMany::Messages(found) = bus.transport().last_many(Stream::Log, &[subject::log_session(&key)]).await?
        else {
            anyhow::bail!("a log of one turn is too long");
        };
        let slot = |stored: &bus::Stored| Some(subject::parse_log(&stored.subject)?.slot);
        let log = found.into_iter().filter_map(|stored| Some((slot(&stored)?, stored.payload))).collect();
        let summary = bus.summary(&key).await?.context("it is not in the index")?;
        Ok(Self { id, log, summary })
    }

    #[allow(clippy::cast_precision_loss, reason = "a handful")]
    fn slots(&self) -> f64 {
        self.log.len() as f64
    }

    /// Copies the session: its log, its timer, its line of the index.
    async fn copy(&self, bus: &Bus, n: usize) -> anyhow::Result<()> {
        let id = copied(n);
        let key = key(&id);
        for (slot, body) in &self.log {
            let text = String::from_utf8_lossy(body).replace(self.id.as_str(), id.as_str());
            let commit: contract::commit::CommitHead = serde_json::from_str(&text)?;
            let body = Bytes::from(text);
            let committed = bus.commit(&key, *slot, &commit.meta.commit, body).await?;
            ensure!(committed == bus::Committed::Ours, "there is a session {id} already");
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let due = Timestamp::from_millis(u64::try_from(now.as_millis())?).after(IDLE_MAX);
        bus.set_timer(&key, 1, due).await?;
        bus.put_summary(&SessionSummary { session_id: id, ..self.summary.clone() }).await?;
        Ok(())
    }

    /// Wakes some of `count` copies for a turn; milliseconds until the log has the message, sorted.
    async fn wake(client: &SessionsClient<Channel>, count: usize) -> anyhow::Result<Vec<f64>> {
        let (woken, at_once) = WOKEN;
        let every = (count / woken).max(1);
        let took = futures::stream::iter((0..count).step_by(every).take(woken)).map(|n| {
            let (mut client, session_id) = (client.clone(), copied(n).to_string());
            async move {
                let began = Instant::now();
                client
                    .send(SendRequest { session_id, text: "Once more.".to_owned(), ..SendRequest::default() })
                    .await?;
                anyhow::Ok(began.elapsed())
            }
        });
        let took: Vec<Duration> = took.buffer_unordered(at_once).try_collect().await?;
        Ok(sorted_ms(took.into_iter()))
    }
}

fn key(id: &SessionId) -> SessionKey {
    SessionKey { tenant: TenantId::default(), session: id.clone() }
}

/// The id of a copy; all are as long, so that one can stand in the place of another.
#[allow(clippy::expect_used, reason = "digits and letters")]
fn copied(n: usize) -> SessionId {
    SessionId::new(&format!("idle{n:028}")).expect("a valid id")
}

/// Watches a session from its beginning until so many of its turns are over, and begins each next one with `text`; tells
/// how many steps there were so far.
async fn turns(
    client: &mut SessionsClient<Channel>,
    id: &SessionId,
    turns: usize,
    text: &str,
    steps_done: &watch::Sender<usize>,
) -> anyhow::Result<()> {
    let (mut steps, mut over) = (0, 0);
    let watch = WatchRequest { session_id: id.to_string(), from_seq: 1, no_chunks: true };
    let mut events = client.watch(watch).await?.into_inner();
    while let Some(event) = events.message().await? {
        if event.topic == Topic::ToolCallResult.as_str() {
            steps += 1;
            steps_done.send_if_modified(|known| std::mem::replace(known, steps.max(*known)) < steps);
        }
        if event.topic == Topic::TurnCompleted.as_str() {
            over += 1;
            if over == turns {
                return Ok(());
            }
            let (session_id, text) = (id.to_string(), text.to_owned());
            client.send(SendRequest { session_id, text, ..SendRequest::default() }).await?;
        }
    }
    anyhow::bail!("session {id} ended before its turn")
}

/// What was used, and what went to the server, when so many steps were done.
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
    let (mut figures, mut shortest) = (Vec::new(), None);
    for ((length, _), cost) in LENGTHS.iter().zip(costs) {
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
        let (first_cpu, first_stored) = *shortest.get_or_insert((cpu - sending, stored));
        figure("cpu_without_request_growth", (cpu - sending) / first_cpu, "x");
        figure("nats_bytes_growth", stored / first_stored, "x");
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
        let start = StartRequest {
            session_id: id.to_string(),
            agent: "long".to_owned(),
            prompt: part.clone(),
            interactive: true,
            ..StartRequest::default()
        };
        client.start(start).await?;
        let (steps_done, position) = watch::channel(0);
        positions.push(position);
        let mut client = client.clone();
        let part = part.clone();
        sessions.spawn(async move { turns(&mut client, &id, TURNS, &part, &steps_done).await });
    }
    let mut marks = Vec::new();
    for (_, [begin, end]) in LENGTHS {
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
