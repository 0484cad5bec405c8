//! Cost that the gateway adds to a model's reply: streams through it beside the same streams without it.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use bus::{Bus, SubscriptionEvent};
use bytes::Bytes;
use contract::commit::{Commit, CommitMeta, Phase};
use contract::event::{Envelope, Topic};
use contract::model::{Chunk, ItemMeta, ModelItem, Streaming};
use contract::subject::SessionKey;
use contract::{CallId, Json, SessionId, TenantId};
use futures::StreamExt;
use futures::future::try_join_all;
use serde_json::{Map, json};
use service::clock::{Clock, SystemClock};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::load::percentile;
use crate::nats::{Durability, NatsNodes};
use crate::paced_model::{now_ns, stamps};
use crate::process::Process;
use crate::report::{self, Figure};

/// Streams at the same time, their chunks and the milliseconds between these, where latency is measured.
const PACED: (usize, u32, u32) = (64, 100, 50);
/// Whole streams of so many chunks, so many in flight, for so long.
const WHOLE: (u32, usize, Duration) = (32, 16, Duration::from_secs(8));
/// Chunks of the one stream that is all that the gateway has to do.
const FAT: u32 = 100_000;
/// Slow streams at the same time, their chunks and the milliseconds between these.
const SLOW: (usize, u32, u32) = (1_000, 12, 1_000);
/// The longest that a stream of the bench may take.
const STREAM_MAX: Duration = Duration::from_mins(3);

/// Options of the gateway measurement; there are none.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct GatewayOptions {}

/// A gateway alone, beside a model server.
pub(crate) struct GatewayBench {
    pub(crate) bus: Bus,
    gateway: Process,
    server: Process,
    url: String,
    nats: NatsNodes,
    _dir: TempDir,
}

/// Delays of chunks in nanoseconds: since they were written, and since they were due.
#[derive(Debug, Default)]
struct ChunkTimes {
    first: Vec<u64>,
    later: Vec<u64>,
    behind: Vec<u64>,
}

impl ChunkTimes {
    fn take(&mut self, first: bool, (meant, written): (u64, u64), at: u64) {
        if first { &mut self.first } else { &mut self.later }.push(at.saturating_sub(written));
        self.behind.push(at.saturating_sub(meant));
    }

    fn join(all: Vec<Self>) -> Self {
        all.into_iter().fold(Self::default(), |mut sum, one| {
            sum.first.extend(one.first);
            sum.later.extend(one.later);
            sum.behind.extend(one.behind);
            sum
        })
    }
}

/// Measures, prints and writes `gateway.json`.
pub(crate) async fn run(_: &GatewayOptions) -> anyhow::Result<()> {
    ailoop::install_crypto();
    let figures = figures().await?;
    report::write("gateway.json", &figures)?;
    report::print(&report::table(&figures));
    Ok(())
}

/// Every figure of the gateway.
pub(crate) async fn figures() -> anyhow::Result<Vec<Figure>> {
    let fixture = GatewayBench::start("pace").await?;
    let mut figures = Vec::new();
    report::note("gateway: paced streams, asked directly, then through the gateway");
    fixture.through("warm", PACED.0, 20, 20, Streaming::default()).await?;
    let direct = fixture.direct(PACED.0, PACED.1, PACED.2).await?;
    let through = fixture.through("paced", PACED.0, PACED.1, PACED.2, Streaming::default()).await?;
    for (name, direct, through) in [("first", direct.first, through.first), ("chunk", direct.later, through.later)] {
        let (direct, through) = (sorted_ms(direct), sorted_ms(through));
        for p in [50, 99] {
            let (without, with) = (percentile(&direct, p), percentile(&through, p));
            figures.push(Figure::new(format!("gateway.{name}.direct_ms_p{p}"), without, "ms"));
            figures.push(Figure::new(format!("gateway.{name}.added_ms_p{p}"), with - without, "ms"));
        }
    }
    report::note("gateway: whole streams, one write for each chunk, none gathered");
    let at_once = Streaming { chunk_ms: 0, chunk_bytes: 1, ..Streaming::default() };
    figures.extend(fixture.whole(&at_once).await?);
    report::note("gateway: one stream as fast as it goes");
    let before = fixture.gateway.usage()?.cpu_s;
    fixture.through("fat", 1, FAT, 0, at_once).await?;
    let cpu = fixture.gateway.usage()?.cpu_s - before;
    figures.push(Figure::new("gateway.chunks_per_cpu_s".to_owned(), f64::from(FAT) / cpu, "1/s"));
    report::note("gateway: slow streams");
    let slow = fixture.through("slow", SLOW.0, SLOW.1, SLOW.2, Streaming::default()).await?;
    let behind = sorted_ms(slow.behind);
    figures.push(Figure::new("gateway.slow_1000.behind_ms_p99".to_owned(), percentile(&behind, 99), "ms"));
    figures.push(Figure::new("gateway.slow_1000.behind_ms_max".to_owned(), percentile(&behind, 100), "ms"));
    figures.push(Figure::new("gateway.slow_1000.rss_mb_max".to_owned(), fixture.gateway.usage()?.rss_mb_max, "MiB"));
    Ok(figures)
}

impl GatewayBench {
    /// Starts it beside the model server that is this part of the bench.
    pub(crate) async fn start(model_server: &str) -> anyhow::Result<Self> {
        let dir = TempDir::with_prefix("ailoop-bench-")?;
        let nats = NatsNodes::start(dir.path(), Durability::ONE).await?;
        let bus = Bus::connect(&bus::NatsConfig { url: nats.url(), ..Default::default() }).await?;
        bus.ensure().await?;
        let mut server = Process::start(model_server, Process::part(&[model_server])?, dir.path())?;
        let url = server.says(|log| Some(log.lines().next()?.to_owned())).await?;
        let models = json!({"providers": {"paced": {"kind": "openai_chat", "base_url": url}}});
        std::fs::write(dir.path().join("models.yaml"), models.to_string())?;
        let mut command = Process::part(&["service", "gateway"])?;
        command.current_dir(dir.path()).env_clear().env("AILOOP_CONFIG", dir.path());
        command.env("AILOOP__NATS__URL", nats.url()).env("AILOOP__GATEWAY__CONCURRENCY", "1200");
        let mut gateway = Process::start("gateway", command, dir.path())?;
        gateway.says(|log| log.contains(" started").then_some(())).await?;
        Ok(Self { bus, gateway, server, url, nats, _dir: dir })
    }

    /// Opens a call, as the loop does.
    pub(crate) async fn open_call(&self, session: &str, prompt: &str, streaming: &Streaming) -> anyhow::Result<()> {
        let key = SessionKey { tenant: TenantId::default(), session: SessionId::new(session)? };
        let now = SystemClock.now();
        let meta = CommitMeta {
            v: contract::commit::VERSION,
            commit: session.to_owned(),
            fold: 1,
            phase: Phase::Running,
            open: vec!["m1-1.1".to_owned()],
            control_seq: 0,
            prev: String::new(),
            timers: 0,
            seq: 1,
            time: now,
            trace_id: String::new(),
            archived: None,
            log_start: None,
            moved: None,
        };
        let commit = serde_json::to_vec(&Commit { meta, snapshot: None, transcript: None, events: Vec::new() })?;
        self.bus.commit(&key, 0, session, Bytes::from(commit)).await?;
        let meta = ItemMeta {
            v: contract::commit::VERSION,
            slot: 0,
            turn: 1,
            step: 1,
            call: CallId::model(1, 1),
            attempt: 1,
            deadline: now.after(STREAM_MAX),
            agent: "bench".to_owned(),
        };
        let item = ModelItem {
            meta,
            model: "paced/paced".to_owned(),
            messages: vec![Json::of(&json!({"role": "user", "content": prompt}))],
            after: None,
            tools: Vec::new(),
            parallel_tool_calls: true,
            parameters: Map::new(),
            response_format: None,
            streaming: streaming.clone(),
            signal: contract::model::SignalForm::Text,
            opened_by: String::new(),
        };
        self.bus.publish_model_item(&key, &item, bus::work::Publication::First).await?;
        Ok(())
    }

    /// Runs streams at the same time through the gateway, received by a viewer.
    async fn through(
        &self,
        name: &str,
        streams: usize,
        chunks: u32,
        pause: u32,
        streaming: Streaming,
    ) -> anyhow::Result<ChunkTimes> {
        let mut chunks_received = self.bus.topic(&TenantId::default(), Topic::AiChunkReceived).await?;
        let pace = format!("pace {chunks} {pause}");
        let sessions: Vec<String> = (0..streams).map(|n| format!("{name}-{n}")).collect();
        // Their chunks come evenly, not all at once.
        let apart = |n: usize| spread(n, streams, pause);
        let begun = sessions.iter().enumerate().map(async |(n, session)| {
            tokio::time::sleep(apart(n)).await;
            self.open_call(session, &pace, &streaming).await
        });
        let listen = async {
            let (mut seen, mut counts, mut ended) = (ChunkTimes::default(), HashMap::<String, u32>::new(), 0);
            while ended < streams {
                let next = timeout(STREAM_MAX, chunks_received.next()).await.context("no chunk within 3 minutes")?;
                let Some(SubscriptionEvent::Message(message)) = next else {
                    anyhow::bail!("the viewer fell behind: {next:?}")
                };
                let at = now_ns();
                let envelope: Envelope = serde_json::from_slice(&message.payload)?;
                if !envelope.session_id.as_str().starts_with(name) {
                    continue;
                }
                let chunk: Chunk = serde_json::from_str(envelope.data.get())?;
                let count = counts.entry(envelope.session_id.to_string()).or_default();
                for stamp in stamps(&chunk.delta).0 {
                    seen.take(*count == 0, stamp, at);
                    *count += 1;
                }
                ended += usize::from(chunk.last);
            }
            let whole = counts.values().filter(|count| **count == chunks).count();
            ensure!(whole == streams, "{whole} of {streams} streams are whole");
            Ok(seen)
        };
        let (seen, _) = tokio::try_join!(listen, try_join_all(begun))?;
        Ok(seen)
    }

    /// The same streams, asked without a gateway.
    async fn direct(&self, streams: usize, chunks: u32, pause: u32) -> anyhow::Result<ChunkTimes> {
        let address = self.url.trim_start_matches("http://").trim_end_matches("/v1").to_owned();
        let body = json!({"stream": true, "messages": [{"content": format!("pace {chunks} {pause}")}]}).to_string();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let one = async |n: usize| {
            tokio::time::sleep(spread(n, streams, pause)).await;
            let mut connection = TcpStream::connect(&address).await?;
            connection.set_nodelay(true)?;
            connection.write_all(request.as_bytes()).await?;
            let (mut seen, mut text, mut count) = (ChunkTimes::default(), String::new(), 0);
            let mut buffer = vec![0; 64 << 10];
            while count < chunks {
                let read = connection.read(&mut buffer).await?;
                ensure!(read > 0, "the server went away");
                let at = now_ns();
                text.push_str(&String::from_utf8_lossy(&buffer[..read]));
                let (found, rest) = stamps(&text);
                for stamp in found {
                    seen.take(count == 0, stamp, at);
                    count += 1;
                }
                text.drain(..rest);
            }
            Ok(seen)
        };
        Ok(ChunkTimes::join(try_join_all((0..streams).map(one)).await?))
    }

    /// Streams as many as there can be.
    async fn whole(&self, streaming: &Streaming) -> anyhow::Result<Vec<Figure>> {
        let (chunks, in_flight, window) = WHOLE;
        let mut chunks_received = self.bus.topic(&TenantId::default(), Topic::AiChunkReceived).await?;
        let pace = format!("pace {chunks} 0");
        let mut requested = 0_u32;
        for _ in 0..in_flight {
            self.open_call(&format!("whole-{requested}"), &pace, streaming).await?;
            requested += 1;
        }
        let before = [self.gateway.usage()?, self.server.usage()?, self.nats.usage()?];
        let (began, mut ended) = (Instant::now(), 0_u32);
        while began.elapsed() < window {
            let next = timeout(STREAM_MAX, chunks_received.next()).await.context("no chunk within 3 minutes")?;
            let Some(SubscriptionEvent::Message(message)) = next else {
                anyhow::bail!("the viewer fell behind: {next:?}")
            };
            if !is_last(&message.payload) {
                continue;
            }
            ended += 1;
            self.open_call(&format!("whole-{requested}"), &pace, streaming).await?;
            requested += 1;
        }
        let took = began.elapsed().as_secs_f64();
        let after = [self.gateway.usage()?, self.server.usage()?, self.nats.usage()?];
        let cpu = |n: usize| (after[n].cpu_s - before[n].cpu_s) * 1e3 / f64::from(ended.max(1));
        Ok(vec![
            Figure::new("gateway.streams_per_s".to_owned(), f64::from(ended) / took, "1/s"),
            Figure::new("gateway.cpu_ms_per_stream".to_owned(), cpu(0), "ms"),
            Figure::new("gateway.server_cpu_ms_per_stream".to_owned(), cpu(1), "ms"),
            Figure::new("gateway.nats_cpu_ms_per_stream".to_owned(), cpu(2), "ms"),
        ])
    }
}

/// Whether a chunk is the last one of its stream. Only its end is read: the load is not what is measured.
pub(crate) fn is_last(chunk: &[u8]) -> bool {
    const LAST: &[u8] = b"\"final\":true";
    /// Enough for it and the reason that follows it.
    const END_BYTES: usize = 64;
    chunk[chunk.len().saturating_sub(END_BYTES)..].windows(LAST.len()).any(|bytes| bytes == LAST)
}

/// Returns the delay of the nth of so many streams, within the pause between two chunks.
fn spread(n: usize, streams: usize, pause: u32) -> Duration {
    let share = u32::try_from(n).unwrap_or(0) * pause * 1_000 / u32::try_from(streams).unwrap_or(1).max(1);
    Duration::from_micros(share.into())
}

/// Nanoseconds in milliseconds, sorted in ascending order.
#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
pub(crate) fn sorted_ms(ns: Vec<u64>) -> Vec<f64> {
    let mut ms: Vec<f64> = ns.into_iter().map(|ns| ns as f64 / 1e6).collect();
    ms.sort_by(f64::total_cmp);
    ms
}
