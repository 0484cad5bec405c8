//! An older store comes back, in the middle of a session.
//!
//! Copies are taken while the session runs. Of one server, the store is copied: at the step the server is killed, its
//! store is replaced by one of the copies, and it starts again. Of three servers, one stream is copied: at the step it is
//! deleted and made anew from one of the copies, and every connection stays. What was stored after the copy is lost. A
//! session goes on or reports what it lost; `ailoop_tests::restored` has the rules.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use ailoop_tests::commands::Sessions;
use ailoop_tests::fleet::key;
use ailoop_tests::judge;
use ailoop_tests::restored::{self, Restore};
use anyhow::{Context, ensure};
use bus::NatsConfig;
use bus::nats::{NatsTransport, StreamDescription};
use bytes::Bytes;
use futures::future::join_all;
use simulation::rng::Rng;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::chaos::fixture::Servers;
use crate::chaos::fleet::LoadedFleet;
use crate::chaos::oracle::resumed;
use crate::chaos::proxy::{FaultReached, Mode};
use crate::chaos::results_file::Row;
use crate::chaos::step::Step;

/// Time between two copies.
const COPY_EVERY: Duration = Duration::from_millis(150);
/// The streams of which one comes back older than the others.
const STREAMS: [&str; 6] =
    ["AI_LOOP_CONTROL", "AI_LOOP_LOG", "AI_LOOP_TIMER", "AI_LOOP_MODEL", "AI_LOOP_TOOL", "KV_ai_loop_claims"];

/// The store or the stream that is copied.
enum Source {
    /// The store of the only server.
    Server(TempDir),
    /// One stream of a cluster.
    Stream(&'static str, Box<NatsTransport>),
}

/// A copy of a store or of a stream.
#[derive(Debug, Clone)]
enum Copied {
    Store(PathBuf),
    Stream(StreamDescription, Vec<Bytes>),
}

/// Copies of a running server or of a stream, oldest first, each with its start time.
struct Copies {
    source: Source,
    taken: Vec<(SystemTime, Copied)>,
}

impl Copies {
    /// Copies of the only server, or of the stream of this number of a cluster.
    async fn new(servers: &Servers, number: usize) -> anyhow::Result<Self> {
        let source = if servers.one().is_ok() {
            Source::Server(TempDir::with_prefix("ailoop-copies-")?)
        } else {
            let config = NatsConfig { url: servers.urls().join(","), ..NatsConfig::default() };
            Source::Stream(STREAMS[number % STREAMS.len()], Box::new(NatsTransport::connect(&config).await?))
        };
        Ok(Self { source, taken: Vec::new() })
    }

    async fn take(&mut self, servers: &Servers) -> anyhow::Result<()> {
        let begun = SystemTime::now();
        let copied = match &self.source {
            Source::Server(dir) => {
                let path = dir.path().join(self.taken.len().to_string());
                servers.one()?.copy_store(&path)?;
                Copied::Store(path)
            }
            Source::Stream(name, nats) => {
                let (description, mut reader) = nats.snapshot(name, true).await?;
                let mut chunks = Vec::new();
                while let Some(chunk) = reader.next().await? {
                    chunks.push(chunk);
                }
                Copied::Stream(description, chunks)
            }
        };
        self.taken.push((begun, copied));
        Ok(())
    }

    /// Takes a copy every [`COPY_EVERY`] until the step is reached.
    async fn take_until(
        &mut self,
        servers: &Servers,
        mut reached: oneshot::Receiver<FaultReached>,
        deadline: Instant,
    ) -> anyhow::Result<FaultReached> {
        loop {
            tokio::select! {
                reached = &mut reached => return reached.context("the step was not reached"),
                () = sleep(COPY_EVERY) => self.take(servers).await?,
            }
            ensure!(Instant::now() < deadline, "the step was not reached");
        }
    }
}

/// Replaces a stream by a copy of it, while every connection stays.
async fn replace_stream(
    nats: &NatsTransport,
    name: &str,
    copy: &StreamDescription,
    chunks: Vec<Bytes>,
) -> anyhow::Result<()> {
    nats.delete_stream(name).await?;
    let mut writer = nats.restore(name, &copy.config, &copy.state).await?;
    for chunk in chunks {
        writer.write(chunk).await?;
    }
    Ok(writer.finish().await?)
}

/// Restores an older store at a step of a session, and checks all sessions. The fleet cannot be used afterwards.
pub(crate) async fn inject(
    fleet: &mut LoadedFleet,
    step: &'static Step,
    session: &str,
    mut session_task: JoinSet<anyhow::Result<()>>,
    reached: oneshot::Receiver<FaultReached>,
    deadline: Instant,
    row: &mut Row,
) -> anyhow::Result<()> {
    let number: usize = session.trim_start_matches(|c: char| !c.is_ascii_digit()).parse()?;
    let mut snapshots = Copies::new(&fleet.fixture.servers, number).await?;
    snapshots.take(&fleet.fixture.servers).await?;
    let reached = snapshots.take_until(&fleet.fixture.servers, reached, deadline).await?;
    let mut rng = Rng::new(reached.at.duration_since(SystemTime::UNIX_EPOCH)?.subsec_nanos().into());
    let (copied, copy) = snapshots.taken[rng.index(snapshots.taken.len() as u64)].clone();

    // The users end here: they would wait for commands that are lost.
    session_task.shutdown().await;
    let others = fleet.abort_others().await;
    match (copy, &snapshots.source) {
        (Copied::Store(copy), _) => fleet.fixture.put_store_back(&copy, step.service, reached.number).await?,
        (Copied::Stream(copy, chunks), Source::Stream(name, nats)) => {
            replace_stream(nats, name, &copy, chunks).await?;
            fleet.fixture.proxy(step.service, reached.number)?.set(Mode::Open);
            row.stream = Some((*name).to_owned());
        }
        (Copied::Stream(..), Source::Server(_)) => anyhow::bail!("a stream was copied of a server"),
    }
    let restored = SystemTime::now();
    // Without a name, all streams came back.
    let only = row.stream.as_deref();
    let is_back = |stream| only.is_none_or(|only| only == stream);
    let (log, control, claims) = (is_back("AI_LOOP_LOG"), is_back("AI_LOOP_CONTROL"), is_back("KV_ai_loop_claims"));
    let (loses_log, loses_claims) = (log || control, log || claims);

    let starts = fleet.fixture.starts.all();
    let mut all: Vec<&str> = starts.keys().map(String::as_str).collect();
    // Sessions that were checked before are complete in every copy.
    all.retain(|name| *name == session || others.contains(*name));
    let begun_after_copy: BTreeSet<String> = starts
        .iter()
        // What is accepted is in the log.
        .filter(|(_, accepted)| accepted.is_none_or(|accepted| log && accepted >= copied))
        .map(|(name, _)| name.clone())
        .collect();
    let restore = Restore { loses_log, loses_claims, begun_after_copy, copied, restored };

    let sessions = Sessions::new(fleet.fixture.edges.get(0), fleet.fixture.bus.clone());
    let new = format!("new-{session}");
    // A start that no edge has accepted may never come.
    let begun = all.iter().filter(|name| loses_log || starts[**name].is_some());
    let mut sent = join_all(begun.map(|name| sessions.send(name, "after", "work"))).await;
    sent.push(sessions.start(&new, "work").await);
    all.push(&new);
    let bus = &fleet.fixture.bus;
    let verdict = restored::judge(&restore, &sessions, &fleet.effects, &all, &[], &sent, bus).await?;
    let age = restored.duration_since(copied).unwrap_or_default();
    ensure!(
        verdict.findings.is_empty(),
        "after a restore of a copy of {} that is {age:?} old: {}",
        row.stream.as_deref().unwrap_or("the store"),
        verdict.findings.join("; ")
    );
    judge::requests(&fleet.model.server.requests())?;
    let commits = bus.history(&key(session)?, 0).await.unwrap_or_default();
    let commits: Vec<_> = commits.into_iter().map(|(_, commit)| commit).collect();
    row.resumed_ms = u64::try_from(resumed(&commits, reached.at).as_millis()).unwrap_or(u64::MAX);
    Ok(())
}
