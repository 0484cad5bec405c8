//! The server comes back with an older store, in the middle of a session.
//!
//! Copies of the store are taken while the session runs. At the step the server is killed, one of the copies is put in the
//! place of its store, and it starts again. What was stored after the copy is gone, so a session need not end as it would
//! have: it goes on or says what it lost, and `ailoop_tests::restored` has the rules.

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

use crate::chaos::book::Row;
use crate::chaos::fleet::Fleet;
use crate::chaos::oracle::resumed;
use crate::chaos::proxy::Fired;
use crate::chaos::step::Step;

/// Time between two copies of the store.
const COPY_EVERY: Duration = Duration::from_millis(150);

/// Copies of a running server's store, oldest first, each with the time at which it was begun.
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

    /// Any of them.
    fn pick(&self, rng: &mut Rng) -> anyhow::Result<(PathBuf, SystemTime)> {
        ensure!(!self.begun.is_empty(), "no copy was taken");
        let index = usize::try_from(rng.below(self.begun.len() as u64))?;
        Ok((self.path(index), self.begun[index]))
    }

    /// Takes copies until the step is reached.
    async fn take_until(
        &mut self,
        server: &NatsServer,
        mut reached: oneshot::Receiver<Fired>,
        deadline: Instant,
    ) -> anyhow::Result<Fired> {
        loop {
            tokio::select! {
                fired = &mut reached => return fired.context("the step was not reached"),
                () = sleep(COPY_EVERY) => self.take(server)?,
            }
            ensure!(Instant::now() < deadline, "the step was not reached");
        }
    }
}

/// Strikes at a step of a session; the fleet has served its time afterwards.
pub(crate) async fn strike(
    fleet: &mut Fleet,
    step: &'static Step,
    session: &str,
    mut life: JoinSet<anyhow::Result<()>>,
    reached: oneshot::Receiver<Fired>,
    deadline: Instant,
    row: &mut Row,
) -> anyhow::Result<()> {
    let mut taken = Copies::new()?;
    taken.take(fleet.stage.servers.one()?)?;
    let fired = taken.take_until(fleet.stage.servers.one()?, reached, deadline).await?;
    let mut rng = Rng::new(fired.at.duration_since(SystemTime::UNIX_EPOCH)?.subsec_nanos().into());
    let (copy, copied) = taken.pick(&mut rng)?;

    // Users are gone with the server: they would wait for what is lost.
    life.shutdown().await;
    let others = fleet.leave_others().await;
    fleet.stage.put_store_back(&copy, step.service, fired.number).await?;
    let restored = SystemTime::now();

    let starts = fleet.stage.starts.all();
    let mut all: Vec<&str> = starts.keys().map(String::as_str).collect();
    // Older ones are in every copy, and were judged before.
    all.retain(|name| *name == session || others.contains(*name));
    let begun_after_copy: BTreeSet<String> = starts
        .iter()
        .filter(|(_, accepted)| accepted.is_none_or(|accepted| accepted >= copied))
        .map(|(name, _)| name.clone())
        .collect();
    let restore = Restore { loses_log: true, loses_claims: true, begun_after_copy, copied, restored };

    let sessions = Sessions::new(fleet.stage.doors.get(0), fleet.stage.bus.clone());
    let new = format!("new-{session}");
    let mut sent = join_all(all.iter().map(|name| sessions.send(name, "after", "work"))).await;
    sent.push(sessions.start(&new, "work").await);
    all.push(&new);
    let bus = &fleet.stage.bus;
    let verdict = restored::judge(&restore, &sessions, &fleet.effects, &all, &[], &sent, bus).await?;
    let age = restored.duration_since(copied).unwrap_or_default();
    ensure!(verdict.findings.is_empty(), "a copy {age:?} old was put back: {}", verdict.findings.join("; "));
    judge::requests(&fleet.model.server.requests())?;
    let commits = bus.history(&key(session)?, 0).await.unwrap_or_default();
    let commits: Vec<_> = commits.into_iter().map(|(_, commit)| commit).collect();
    row.resumed_ms = u64::try_from(resumed(&commits, fired.at).as_millis()).unwrap_or(u64::MAX);
    Ok(())
}
