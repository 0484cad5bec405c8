//! Many watchers of sessions that stream: how much later than on the bus a chunk reaches them, what a connection costs,
//! and whether readers that are too slow delay the others.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use bus::SubscriptionEvent;
use contract::TenantId;
use contract::event::{Envelope, Topic};
use contract::model::Chunk;
use futures::{StreamExt, TryStreamExt, stream};
use proto::sessions_client::SessionsClient;
use proto::{SendMessageRequest, StartSessionRequest};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};
use tonic::transport::Channel;

use super::options::EdgeOptions;
use super::sse::SseConnection;
use crate::fixture::Fixture;
use crate::gateway::sorted_ms;
use crate::load::percentile;
use crate::paced_model::{now_ns, stamps};
use crate::process::Usage;
use crate::report::{self, Figure};

/// Connections that are opened at the same time.
const OPENING: usize = 32;
/// The longest that a turn may take.
const TURN_MAX: Duration = Duration::from_mins(3);
/// Bytes that a slow reader takes each second, and its connection takes at once.
const SLOW_BYTES: usize = 1_000;
/// Bytes of each chunk of the session that slow readers watch.
const FAT_CHUNK_BYTES: usize = 8 << 10;
/// The session that slow readers watch.
const FAT: &str = "fat";
const BYTES_PER_KIB: f64 = 1024.0;

/// Times at which a chunk was written and read.
type Arrival = (u64, u64);

/// Delays of the watchers, memory of the edge, and the same beside slow readers.
pub(super) async fn figures(fixture: &Fixture, options: &EdgeOptions) -> anyhow::Result<Vec<Figure>> {
    report::note(&format!("edge: {} watchers of {} sessions", options.watchers, options.sessions));
    let client = SessionsClient::connect(fixture.edges[0].clone()).await?;
    let sessions: Vec<String> = (0..options.sessions).map(|n| format!("fan-{n}")).collect();
    for session in sessions.iter().map(String::as_str).chain([FAT]) {
        start(client.clone(), session).await?;
    }
    let edge = fixture.http_edges[0].as_str();
    let before = edge_usage(fixture)?;
    let opened = stream::iter(0..options.watchers)
        .map(|n| SseConnection::watch(edge, &sessions[n % sessions.len()], 0))
        .buffered(OPENING);
    let watchers: Vec<SseConnection> = opened.try_collect().await?;
    let idle = edge_usage(fixture)?;

    let (watchers, alone) = turn(fixture, &client, &sessions, watchers, options).await?;
    let after = edge_usage(fixture)?;

    report::note(&format!("edge: the same beside {} readers of 1 KB a second", options.slow_readers));
    let slow = SlowReaders::start(edge, options.slow_readers).await?;
    let pace = format!("pace {} {} {FAT_CHUNK_BYTES}", options.chunks, options.pause_ms);
    send(client.clone(), FAT, &pace).await?;
    let (_watchers, beside) = turn(fixture, &client, &sessions, watchers, options).await?;
    let still_open = slow.still_open();

    let connections = precise(options.watchers);
    let per_connection = |usage: Usage| (usage.rss_mb - before.rss_mb) * BYTES_PER_KIB / connections;
    let events = connections * f64::from(options.chunks);
    let mut figures = vec![
        Figure::new("edge.watchers".to_owned(), connections, ""),
        Figure::new("edge.connection_kib_idle".to_owned(), per_connection(idle), "KiB"),
        Figure::new("edge.connection_kib_streaming".to_owned(), per_connection(after), "KiB"),
        Figure::new("edge.cpu_us_per_chunk_and_watcher".to_owned(), (after.cpu_s - idle.cpu_s) * 1e6 / events, "us"),
    ];
    for p in [50, 99] {
        let figure = Figure::new(format!("edge.fan_out_ms_p{p}"), percentile(&alone, p), "ms");
        figures.push(figure);
        figures.push(Figure::new(format!("edge.fan_out_beside_slow_ms_p{p}"), percentile(&beside, p), "ms"));
    }
    figures.push(Figure::new("edge.slow_readers_open".to_owned(), precise(still_open), ""));
    figures.push(Figure::new("edge.rss_mb_beside_slow".to_owned(), edge_usage(fixture)?.rss_mb, "MiB"));
    Ok(figures)
}

/// One turn of each session, read by all watchers: the milliseconds from the arrival of each chunk on the bus to its
/// arrival at each watcher, sorted.
async fn turn(
    fixture: &Fixture,
    client: &SessionsClient<Channel>,
    sessions: &[String],
    watchers: Vec<SseConnection>,
    options: &EdgeOptions,
) -> anyhow::Result<(Vec<SseConnection>, Vec<f64>)> {
    let wanted = sessions.len() * usize::try_from(options.chunks)?;
    let bus = bus::Bus::connect(&bus::NatsConfig { url: fixture.nats.url(), ..Default::default() }).await?;
    let mut chunks = bus.topic(&TenantId::default(), Topic::AiChunkReceived).await?;
    let mut on_bus = JoinSet::new();
    on_bus.spawn(async move {
        let mut arrivals = HashMap::new();
        while arrivals.len() < wanted {
            let Some(SubscriptionEvent::Message(message)) = chunks.next().await else {
                anyhow::bail!("the reader of the bus fell behind")
            };
            let at = now_ns();
            let envelope: Envelope = serde_json::from_slice(&message.payload)?;
            if envelope.session_id.as_str() == FAT {
                continue;
            }
            let chunk: Chunk = serde_json::from_str(envelope.data.get())?;
            arrivals.extend(stamps(&chunk.delta).0.into_iter().map(|(_, written)| (written, at)));
        }
        anyhow::Ok(arrivals)
    });
    let mut reading = JoinSet::new();
    let chunks = usize::try_from(options.chunks)?;
    for watcher in watchers {
        reading.spawn(timeout(TURN_MAX, read_turn(watcher, chunks)));
    }
    let pace = format!("pace {} {}", options.chunks, options.pause_ms);
    let apart = Duration::from_millis(options.pause_ms.into()) / u32::try_from(sessions.len())?;
    for session in sessions {
        send(client.clone(), session, &pace).await?;
        sleep(apart).await;
    }
    let (mut watchers, mut arrivals) = (Vec::new(), Vec::new());
    while let Some(read) = reading.join_next().await {
        let (watcher, read) = read?.context("a watcher does not see the end of the turn")??;
        watchers.push(watcher);
        arrivals.extend(read);
    }
    let on_bus = timeout(TURN_MAX, on_bus.join_next()).await.context("the bus has not all chunks")?;
    let on_bus = on_bus.context("the bus is not read")???;
    bus.close().await;
    let mut delays = Vec::with_capacity(arrivals.len());
    for (written, at) in arrivals {
        let on_bus = on_bus.get(&written).context("a watcher has a chunk that the bus has not")?;
        delays.push(at.saturating_sub(*on_bus));
    }
    Ok((watchers, sorted_ms(delays)))
}

/// Reads up to the end of a turn; every chunk must have come.
async fn read_turn(mut watcher: SseConnection, chunks: usize) -> anyhow::Result<(SseConnection, Vec<Arrival>)> {
    let mut arrivals = Vec::with_capacity(chunks);
    loop {
        let frame = watcher.next().await?;
        if frame.is(Topic::AiChunkReceived) {
            let at = now_ns();
            arrivals.extend(stamps(&frame.data).0.into_iter().map(|(_, written)| (written, at)));
        }
        if frame.is(Topic::TurnCompleted) {
            ensure!(arrivals.len() == chunks, "a watcher has {} of {chunks} chunks", arrivals.len());
            return Ok((watcher, arrivals));
        }
    }
}

/// Readers of a fat session, until this is dropped.
struct SlowReaders(JoinSet<anyhow::Result<()>>);

impl SlowReaders {
    async fn start(edge: &str, readers: usize) -> anyhow::Result<Self> {
        let mut all = JoinSet::new();
        for _ in 0..readers {
            let mut connection = SseConnection::watch_with_small_window(edge, FAT, SLOW_BYTES).await?;
            all.spawn(async move {
                let mut ticks = interval(Duration::from_secs(1));
                loop {
                    ticks.tick().await;
                    ensure!(connection.skip(SLOW_BYTES).await?, "the edge closed the connection");
                }
            });
        }
        Ok(Self(all))
    }

    fn still_open(mut self) -> usize {
        while self.0.try_join_next().is_some() {}
        self.0.len()
    }
}

async fn start(mut client: SessionsClient<Channel>, session: &str) -> anyhow::Result<()> {
    let start = StartSessionRequest {
        session_id: Some(session.to_owned()),
        agent: Some("talk".to_owned()),
        model: Some("slow".to_owned()),
        interactive: Some(true),
        ..StartSessionRequest::default()
    };
    client.start_session(start).await?;
    Ok(())
}

async fn send(mut client: SessionsClient<Channel>, session: &str, text: &str) -> anyhow::Result<()> {
    let send = SendMessageRequest {
        session_id: session.to_owned(),
        content: Some(text.to_owned().into()),
        wait: Some(false),
        ..SendMessageRequest::default()
    };
    client.send_message(send).await?;
    Ok(())
}

fn edge_usage(fixture: &Fixture) -> anyhow::Result<Usage> {
    let used = fixture.used()?;
    let edge = used.services.into_iter().find(|(name, _)| name == "edge");
    edge.map(|(_, usage)| usage).context("there is no edge")
}

#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
fn precise(count: usize) -> f64 {
    count as f64
}
