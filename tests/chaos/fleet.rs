//! One fleet under load, into which one fault after the other is injected.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ailoop_tests::durations;
use ailoop_tests::effects::EffectRecorder;
use ailoop_tests::fleet::wait_for_tools;
use ailoop_tests::judge;
use ailoop_tests::tool_server::EFFECTS;
use ailoop_tests::wait::PATIENCE;
use ailoop_tool::Effect;
use anyhow::{Context, ensure};
use contract::streams::Stream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::chaos::fixture::Fixture;
use crate::chaos::older_store;
use crate::chaos::oracle::{Evidence, gap, resumed};
use crate::chaos::proxy::{FaultPoint, belongs_to};
use crate::chaos::recorded_model::{LARGE, RecordedModel};
use crate::chaos::results_file::{ResultsFile, Row, Trial};
use crate::chaos::step::{Fault, Target};
use crate::chaos::user::{FaultWindow, User};

/// Sessions that run beside the one with the fault.
const OTHERS: usize = 3;
/// Pause between two of them: each is checked, and without a pause most of the time would be spent on these.
const BETWEEN: Duration = Duration::from_millis(250);
/// Faults in one fleet: all records of a fleet are read again after each fault.
const FAULTS_PER_FLEET_MAX: usize = 25;
/// A pause that counts as waiting for an ack wait of 5 s. A session of which the faulty replica held no item may still
/// wait for one, if an item was on its way to that replica.
const WAITED: Duration = Duration::from_secs(4);
/// Longest pause of such a session; a longer one has another cause.
const OTHERS_GAP_MAX: Duration = Duration::from_secs(7);
/// Longest time until a session goes on after a SIGKILL.
const RESUME_MAX: Duration = Duration::from_secs(20);

/// Sessions that run while leaders are killed.
const LEADERLESS: usize = 8;
/// The streams whose leaders are killed, in turn.
const LED: [Stream; 4] = [Stream::Log, Stream::Control, Stream::Model, Stream::Tool];

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Runs trials until the file is complete. A fleet is replaced after a violation, after an older store, and after
/// [`FAULTS_PER_FLEET_MAX`] faults.
pub(crate) async fn run(results_file: &ResultsFile, nodes: usize, failures: &Path) -> anyhow::Result<()> {
    while let Some(trial) = results_file.next(nodes) {
        let mut fleet = LoadedFleet::start(nodes, OTHERS).await?;
        let (mut next, mut injected) = (Some(trial), 0);
        while let Some(trial) = next {
            injected += 1;
            let row = fleet.inject(trial).await;
            let wrong = row.wrong.is_some();
            if wrong {
                keep_logs(&fleet, failures)?;
            }
            print_progress(results_file.write(row.clone())?, &row);
            // The records of a fleet do not agree with an older store.
            let ended = wrong || injected == FAULTS_PER_FLEET_MAX || trial.fault == Fault::OlderStore;
            next = if ended { None } else { results_file.next(nodes) };
        }
        fleet.end();
    }
    Ok(())
}

fn keep_logs(fleet: &LoadedFleet, failures: &Path) -> anyhow::Result<()> {
    fleet.fixture.launcher.keep_logs(&failures.join(NUMBER.load(Ordering::Relaxed).to_string()))
}

#[allow(clippy::print_stderr, reason = "the progress of a long run")]
fn print_progress((done, all): (usize, usize), row: &Row) {
    let Row { nodes, service, step, target, fault, resumed_ms, .. } = row;
    let came = row.wrong.as_deref().unwrap_or("ok");
    eprintln!("{done}/{all} on {nodes}: {service}, {step}; {fault} {target}: {came}, {resumed_ms} ms");
}

pub(crate) struct LoadedFleet {
    pub(crate) fixture: Fixture,
    pub(crate) model: Arc<RecordedModel>,
    pub(crate) effects: Arc<EffectRecorder>,
    fault_windows: Arc<Mutex<Vec<FaultWindow>>>,
    stop: Arc<AtomicBool>,
    others: JoinSet<anyhow::Result<Vec<String>>>,
    /// Sessions that have ended and were checked.
    judged: BTreeSet<String>,
    _scratch: tempfile::TempDir,
}

impl LoadedFleet {
    async fn start(nodes: usize, busy: usize) -> anyhow::Result<Self> {
        let scratch = tempfile::TempDir::with_prefix("ailoop-chaos-")?;
        let model = Arc::new(RecordedModel::start().await?);
        let fixture = Fixture::start(nodes, &model.server).await?;
        let effects = EffectRecorder::serve(&fixture.servers.urls().join(","), &scratch.path().join("effects")).await?;
        wait_for_tools(&fixture.bus, &EFFECTS.map(Effect::as_str)).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut others = JoinSet::new();
        for _ in 0..busy {
            others.spawn(keep_busy(user_of(&fixture), stop.clone()));
        }
        let (effects, fault_windows) = (Arc::new(effects), Arc::default());
        Ok(Self { fixture, model, effects, fault_windows, stop, others, judged: BTreeSet::new(), _scratch: scratch })
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn evidence(&self, target: Target, fault: Fault) -> Evidence<'_> {
        let lossy = target == Target::Server || matches!(fault, Fault::Silence | Fault::Cut);
        let Fixture { bus, traffic, .. } = &self.fixture;
        Evidence { bus, traffic, effects: &self.effects, model: &self.model, lossy }
    }

    async fn inject(&mut self, trial: Trial) -> Row {
        let mut row = Row {
            nodes: trial.nodes,
            service: trial.step.service.to_owned(),
            step: trial.step.name.to_owned(),
            target: trial.target.to_string(),
            fault: trial.fault.to_string(),
            stream: None,
            wrong: None,
            resumed_ms: 0,
            others: 0,
            others_waited: 0,
            others_gap_ms: 0,
            paid_again: 0,
        };
        if let Err(error) = self.try_inject(trial, &mut row).await {
            row.wrong = Some(format!("{error:#}"));
        }
        row
    }

    async fn try_inject(&mut self, trial: Trial, row: &mut Row) -> anyhow::Result<()> {
        let kind = if trial.step.name.starts_with("a large reply") { LARGE } else { "fault" };
        let session = format!("{kind}{:06}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let reached = self.fixture.traffic.arm(FaultPoint { step: trial.step, session: session.clone() });
        let user = user_of(&self.fixture);
        let mut session_task = JoinSet::new();
        session_task.spawn({
            let session = session.clone();
            async move { user.two_turns(&session).await }
        });
        if trial.fault == Fault::OlderStore {
            let deadline = Instant::now() + PATIENCE;
            return older_store::inject(self, trial.step, &session, session_task, reached, deadline, row).await;
        }
        let reached = timeout(PATIENCE, reached)
            .await
            .context("the step was not reached")?
            .context("the step was not reached")?;
        self.fixture.proxy(trial.step.service, reached.number)?.start_recording();
        let inject = self.fixture.inject(trial, &session, reached.number);
        timeout(PATIENCE, inject).await.context("the fault was not repaired in time")??;
        session_task.join_next().await.context("the session task is missing")???;
        let held = self.fixture.proxy(trial.step.service, reached.number)?.take_recorded();
        let fault_window = FaultWindow { from: reached.at, to: SystemTime::now(), held };

        let commits = self.evidence(trial.target, trial.fault).judge(&session, 2).await.context(session.clone())?;
        let time = resumed(&commits, reached.at);
        row.resumed_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        if trial.fault == Fault::Kill {
            durations::check(&format!("to go on with {session}"), time, RESUME_MAX)?;
        }
        let (again, unchecked) = self.evidence(trial.target, trial.fault).paid_again(&session);
        row.paid_again = again;
        // A gateway may have checked before the reply was stored, and its request may have reached the model after
        // that.
        ensure!(unchecked == 0, "{session}: a stored reply was requested again without a check whether it is stored");
        self.judged.insert(session);
        judge::requests(&self.model.server.requests())?;
        self.judge_others(trial, &fault_window, row).await
    }

    /// Aborts the users of the other sessions; returns the sessions that began since the last fault.
    pub(crate) async fn abort_others(&mut self) -> BTreeSet<String> {
        self.others.shutdown().await;
        self.fixture.starts.all().into_keys().filter(|name| !self.judged.contains(name)).collect()
    }

    /// Lets the other sessions end; returns their names.
    async fn end_others(&mut self) -> anyhow::Result<Vec<String>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut ended = Vec::new();
        while let Some(other) = self.others.join_next().await {
            ended.extend(other??);
        }
        Ok(ended)
    }

    /// Lets the other sessions end, checks them, and starts new ones.
    async fn judge_others(&mut self, trial: Trial, fault_window: &FaultWindow, row: &mut Row) -> anyhow::Result<()> {
        let ended = self.end_others().await?;
        self.stop.store(false, Ordering::Relaxed);
        for _ in 0..OTHERS {
            self.others.spawn(keep_busy(user_of(&self.fixture), self.stop.clone()));
        }
        self.fault_windows.lock().unwrap_or_else(PoisonError::into_inner).push(fault_window.clone());
        for session in ended {
            let commits =
                self.evidence(trial.target, trial.fault).judge(&session, 1).await.with_context(|| session.clone())?;
            let touched = fault_window.held.iter().any(|item| belongs_to(item, &session));
            // A server fault affects every session, and a request that is lost with its composer or edge is no item.
            let apart =
                trial.target == Target::Service && !touched && !matches!(trial.step.service, "composer" | "edge");
            if apart {
                let longest = gap(&commits, fault_window.from, fault_window.to);
                row.others += 1;
                row.others_waited += usize::from(longest > WAITED);
                row.others_gap_ms = row.others_gap_ms.max(u64::try_from(longest.as_millis()).unwrap_or(u64::MAX));
                let what = format!("a step of {session}, of which the faulty replica held no item,");
                durations::check(&what, longest, OTHERS_GAP_MAX)?;
            }
            self.judged.insert(session);
        }
        Ok(())
    }
}

/// Kills the leader of one stream after the other, one each `every`, on three servers under load.
pub(crate) async fn kill_leaders(length: Duration, every: Duration) -> anyhow::Result<()> {
    let mut fleet = LoadedFleet::start(3, LEADERLESS).await?;
    let began = Instant::now();
    let mut kills = 0;
    for stream in LED.into_iter().cycle() {
        if began.elapsed() + every > length {
            break;
        }
        let next = Instant::now() + every;
        fleet.fixture.kill_leader(stream).await?;
        kills += 1;
        sleep_until(next).await;
    }
    let ended = fleet.end_others().await?;
    let mut longest = Duration::ZERO;
    for session in &ended {
        let commits = fleet.evidence(Target::Server, Fault::Kill).judge(session, 1).await;
        let commits = commits.with_context(|| session.clone())?;
        let to = SystemTime::now();
        longest = longest.max(gap(&commits, SystemTime::UNIX_EPOCH, to));
    }
    judge::requests(&fleet.model.server.requests())?;
    #[allow(clippy::print_stderr, reason = "the result of a long run")]
    {
        let (sessions, took) = (ended.len(), began.elapsed());
        eprintln!("{kills} leaders killed in {took:?}: {sessions} sessions, all correct; longest pause {longest:?}");
    }
    ensure!(ended.len() >= LEADERLESS, "only {} sessions ended", ended.len());
    Ok(())
}

fn user_of(fixture: &Fixture) -> User {
    User { edges: fixture.edges.clone(), starts: fixture.starts.clone(), bus: fixture.bus.clone() }
}

/// Runs one session after the other; returns their names.
async fn keep_busy(user: User, stop: Arc<AtomicBool>) -> anyhow::Result<Vec<String>> {
    let mut ended = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let session = format!("other{:06}", NUMBER.fetch_add(1, Ordering::Relaxed));
        user.one_turn(&session).await?;
        ended.push(session);
        sleep(BETWEEN).await;
    }
    Ok(ended)
}
