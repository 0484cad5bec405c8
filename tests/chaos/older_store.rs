//! The server is restored with an older store, in the middle of a session.
//!
//! Copies of the store are taken while the session runs. At the step the server is killed, its store is replaced by one
//! of the copies, and it starts again. What was stored after the copy is lost. A session goes on or reports what it
//! lost; `ailoop_tests::restored` has the rules.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use ailoop_tests::commands::Sessions;
use ailoop_tests::fleet::key;
use ailoop_tests::judge;
use ailoop_tests::nats::NatsServer;
use ailoop_tests::restored::{self, Restore};
use anyhow::{Context, ensure};
use futures::future::join_all;
use simulation::rng::Rng;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::chaos::fleet::LoadedFleet;
use crate::chaos::oracle::resumed;
use crate::chaos::proxy::FaultReached;
use crate::chaos::results_file::Row;
use crate::chaos::step::Step;

/// Time between two copies of the store.
const COPY_EVERY: Duration = Duration::from_millis(150);

/// Copies of the store of a running server, oldest first, each with its start time.
struct Copies {
    dir: TempDir,
    begun: Vec<SystemTime>,
}

impl Copies {
    fn new() -> anyhow::Result<Self> {
        Ok(Self { dir: TempDir::with_prefix("ailoop-copies-")?, begun: Vec::new() })
    }

    fn path(&self, index: usize) -> PathBuf {
        self.dir.path().join(index.to_string())
    }

    fn take(&mut self, server: &NatsServer) -> anyhow::Result<()> {
        let begun = SystemTime::now();
        server.copy_store(&self.path(self.begun.len()))?;
        self.begun.push(begun);
        Ok(())
    }

    /// A random copy, with its start time.
    fn pick(&self, rng: &mut Rng) -> anyhow::Result<(PathBuf, SystemTime)> {
        ensure!(!self.begun.is_empty(), "no copy was taken");
        let index = rng.index(self.begun.len() as u64);
        Ok((self.path(index), self.begun[index]))
    }

    /// Takes a copy every [`COPY_EVERY`] until the step is reached.
    async fn take_until(
        &mut self,
        server: &NatsServer,
        mut reached: oneshot::Receiver<FaultReached>,
        deadline: Instant,
    ) -> anyhow::Result<FaultReached> {
        loop {
            tokio::select! {
                reached = &mut reached => return reached.context("the step was not reached"),
                () = sleep(COPY_EVERY) => self.take(server)?,
            }
            ensure!(Instant::now() < deadline, "the step was not reached");
        }
    }
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
    let mut taken = Copies::new()?;
    taken.take(fleet.fixture.servers.one()?)?;
    let reached = taken.take_until(fleet.fixture.servers.one()?, reached, deadline).await?;
    let mut rng = Rng::new(reached.at.duration_since(SystemTime::UNIX_EPOCH)?.subsec_nanos().into());
    let (copy, copied) = taken.pick(&mut rng)?;

    // The users end here: they would wait for commands that are lost.
    session_task.shutdown().await;
    let others = fleet.abort_others().await;
    fleet.fixture.put_store_back(&copy, step.service, reached.number).await?;
    let restored = SystemTime::now();

    let starts = fleet.fixture.starts.all();
    let mut all: Vec<&str> = starts.keys().map(String::as_str).collect();
    // Sessions that were checked before are complete in every copy.
    all.retain(|name| *name == session || others.contains(*name));
    let begun_after_copy: BTreeSet<String> = starts
        .iter()
        .filter(|(_, accepted)| accepted.is_none_or(|accepted| accepted >= copied))
        .map(|(name, _)| name.clone())
        .collect();
    let restore = Restore { loses_log: true, loses_claims: true, begun_after_copy, copied, restored };

    let sessions = Sessions::new(fleet.fixture.edges.get(0), fleet.fixture.bus.clone());
    let new = format!("new-{session}");
    let mut sent = join_all(all.iter().map(|name| sessions.send(name, "after", "work"))).await;
    sent.push(sessions.start(&new, "work").await);
    all.push(&new);
    let bus = &fleet.fixture.bus;
    let verdict = restored::judge(&restore, &sessions, &fleet.effects, &all, &[], &sent, bus).await?;
    let age = restored.duration_since(copied).unwrap_or_default();
    ensure!(
        verdict.findings.is_empty(),
        "after a restore of a copy that is {age:?} old: {}",
        verdict.findings.join("; ")
    );
    judge::requests(&fleet.model.server.requests())?;
    let commits = bus.history(&key(session)?, 0).await.unwrap_or_default();
    let commits: Vec<_> = commits.into_iter().map(|(_, commit)| commit).collect();
    row.resumed_ms = u64::try_from(resumed(&commits, reached.at).as_millis()).unwrap_or(u64::MAX);
    Ok(())
}
