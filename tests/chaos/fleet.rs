//! One fleet under load, struck again and again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use ailoop_tests::effects::EffectRecorder;
use ailoop_tests::fleet::wait_for_tools;
use ailoop_tests::judge;
use ailoop_tests::tool_server::EFFECTS;
use ailoop_tool::Effect;
use anyhow::{Context, ensure};
use contract::streams::Stream;
use contract::subject;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::chaos::book::{Book, Cell, Row};
use crate::chaos::life::{Trouble, User};
use crate::chaos::older_store;
use crate::chaos::oracle::{Witnesses, gap, resumed};
use crate::chaos::proxy::Aim;
use crate::chaos::stage::Stage;
use crate::chaos::step::{Fault, Target};
use crate::chaos::witness::Model;

/// Sessions that run beside the one that is struck.
const OTHERS: usize = 3;
/// Pause between two of them: each is judged, and without one a fleet would spend its time on sessions that nobody struck.
const BETWEEN: Duration = Duration::from_millis(250);
/// How often one fleet is struck: all that its witnesses noted down is read again each time.
const STRIKES_MAX: usize = 25;
/// How long the step may take to come.
const REACHED_MAX: Duration = Duration::from_secs(20);
/// How long mending may take.
const MENDED_MAX: Duration = Duration::from_secs(90);
/// A session of whose items none was held by who was struck goes on, unless an item of it was on its way to it just then and
/// waits for its ack wait of 5 s. So does a pause count that is nearly as long,
const WAITED: Duration = Duration::from_secs(4);
/// and a longer one has another cause.
const OTHERS_GAP_MAX: Duration = Duration::from_secs(7);
/// How long a session may take to go on after a SIGKILL, on a busy machine.
const RESUME_MAX: Duration = Duration::from_secs(20);

/// Sessions that run while leaders are killed.
const LEADERLESS: usize = 8;
/// The streams whose leaders are killed, in turn.
const LED: [Stream; 4] = [Stream::Log, Stream::Control, Stream::Model, Stream::Tool];

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Strikes until the book is full; a fleet in which something went wrong is replaced by a new one, and so is an old one.
pub(crate) async fn run(book: &Book, nodes: usize, failures: &Path) -> anyhow::Result<()> {
    while let Some(cell) = book.next(nodes) {
        let mut fleet = Fleet::start(nodes, OTHERS).await?;
        let (mut next, mut struck) = (Some(cell), 0);
        while let Some(cell) = next {
            struck += 1;
            let row = fleet.strike(cell).await;
            let wrong = row.wrong.is_some();
            if wrong {
                keep(&fleet, failures)?;
            }
            tell(book.write(row.clone())?, &row);
            // What the fleet's recorders know is not what an older store knows.
            let ended = wrong || struck == STRIKES_MAX || cell.fault == Fault::OlderStore;
            next = if ended { None } else { book.next(nodes) };
        }
        fleet.end();
    }
    Ok(())
}

fn keep(fleet: &Fleet, failures: &Path) -> anyhow::Result<()> {
    fleet.stage.site.keep_logs(&failures.join(NUMBER.load(Ordering::Relaxed).to_string()))
}

#[allow(clippy::print_stderr, reason = "the progress of a long run")]
fn tell((done, all): (usize, usize), row: &Row) {
    let Row { nodes, service, step, target, fault, resumed_ms, .. } = row;
    let came = row.wrong.as_deref().unwrap_or("ok");
    eprintln!("{done}/{all} on {nodes}: {service}, {step}; {fault} {target}: {came}, {resumed_ms} ms");
}

pub(crate) struct Fleet {
    pub(crate) stage: Stage,
    pub(crate) model: Arc<Model>,
    pub(crate) effects: Arc<EffectRecorder>,
    troubles: Arc<Mutex<Vec<Trouble>>>,
    stop: Arc<AtomicBool>,
    others: JoinSet<anyhow::Result<Vec<String>>>,
    /// Sessions that have ended and were judged.
    judged: BTreeSet<String>,
    _scratch: tempfile::TempDir,
}

impl Fleet {
    async fn start(nodes: usize, busy: usize) -> anyhow::Result<Self> {
        let scratch = tempfile::TempDir::with_prefix("ailoop-chaos-")?;
        let model = Arc::new(Model::start().await?);
        let stage = Stage::start(nodes, &model.server).await?;
        let effects = EffectRecorder::serve(&stage.servers.urls().join(","), &scratch.path().join("effects")).await?;
        wait_for_tools(&stage.bus, &EFFECTS.map(Effect::as_str)).await?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut others = JoinSet::new();
        for _ in 0..busy {
            others.spawn(keep_busy(stage_user(&stage), stop.clone()));
        }
        let (effects, troubles) = (Arc::new(effects), Arc::default());
        Ok(Self { stage, model, effects, troubles, stop, others, judged: BTreeSet::new(), _scratch: scratch })
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn witnesses(&self, target: Target, fault: Fault) -> Witnesses<'_> {
        let lossy = target == Target::Server || matches!(fault, Fault::Silence | Fault::Cut);
        let Stage { bus, wires, .. } = &self.stage;
        Witnesses { bus, wires, effects: &self.effects, model: &self.model, lossy }
    }

    async fn strike(&mut self, cell: Cell) -> Row {
        let mut row = Row {
            nodes: cell.nodes,
            service: cell.step.service.to_owned(),
            step: cell.step.name.to_owned(),
            target: cell.target.to_string(),
            fault: cell.fault.to_string(),
            wrong: None,
            resumed_ms: 0,
            others: 0,
            others_waited: 0,
            others_gap_ms: 0,
            paid_again: 0,
        };
        if let Err(error) = self.try_strike(cell, &mut row).await {
            row.wrong = Some(format!("{error:#}"));
        }
        row
    }

    async fn try_strike(&mut self, cell: Cell, row: &mut Row) -> anyhow::Result<()> {
        let session = format!("struck{:06}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let fired = self.stage.wires.arm(Aim { step: cell.step, session: session.clone() });
        let user = stage_user(&self.stage);
        let mut life = JoinSet::new();
        life.spawn({
            let session = session.clone();
            async move { user.two_turns(&session).await }
        });
        if cell.fault == Fault::OlderStore {
            let deadline = Instant::now() + REACHED_MAX;
            return older_store::strike(self, cell.step, &session, life, fired, deadline, row).await;
        }
        let fired = timeout(REACHED_MAX, fired)
            .await
            .context("the step was not reached")?
            .context("the step was not reached")?;
        self.stage.proxy(cell.step.service, fired.number)?.note();
        let strike = self.stage.strike(cell.target, cell.fault, cell.step.service, fired.number);
        timeout(MENDED_MAX, strike).await.context("not mended in time")??;
        life.join_next().await.context("a life")???;
        let held = self.stage.proxy(cell.step.service, fired.number)?.noted();
        let trouble = Trouble { from: fired.at, to: SystemTime::now(), held };

        let commits = self.witnesses(cell.target, cell.fault).judge(&session, 2).await.context(session.clone())?;
        let time = resumed(&commits, fired.at);
        row.resumed_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        if cell.fault == Fault::Kill {
            ensure!(time < RESUME_MAX, "{session} went on after {time:?}");
        }
        let (again, unasked) = self.witnesses(cell.target, cell.fault).paid_again(&session);
        row.paid_again = again;
        // A gateway may have asked before the reply was stored, and its request may have come to the model after that.
        ensure!(
            unasked == 0,
            "{session}: a reply that was stored was asked for again without a question whether it is"
        );
        self.judged.insert(session);
        judge::requests(&self.model.server.requests())?;
        self.judge_others(cell, &trouble, row).await
    }

    /// Leaves the others where they are; returns the sessions that were begun since the last strike.
    pub(crate) async fn leave_others(&mut self) -> BTreeSet<String> {
        self.others.shutdown().await;
        self.stage.starts.all().into_keys().filter(|name| !self.judged.contains(name)).collect()
    }

    /// Lets the others end; returns the sessions that they had.
    async fn rest(&mut self) -> anyhow::Result<Vec<String>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut lived = Vec::new();
        while let Some(other) = self.others.join_next().await {
            lived.extend(other??);
        }
        Ok(lived)
    }

    /// Lets the others end, judges them, and starts new ones.
    async fn judge_others(&mut self, cell: Cell, trouble: &Trouble, row: &mut Row) -> anyhow::Result<()> {
        let lived = self.rest().await?;
        self.stop.store(false, Ordering::Relaxed);
        for _ in 0..OTHERS {
            self.others.spawn(keep_busy(stage_user(&self.stage), self.stop.clone()));
        }
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).push(trouble.clone());
        for session in lived {
            let commits =
                self.witnesses(cell.target, cell.fault).judge(&session, 1).await.with_context(|| session.clone())?;
            let touched = trouble.held.iter().any(|item| of(item, &session));
            // Everybody waits for a server; a request that dies with its composer or edge is not an item.
            let apart = cell.target == Target::Service && !touched && !matches!(cell.step.service, "composer" | "edge");
            if apart {
                let longest = gap(&commits, trouble.from, trouble.to);
                row.others += 1;
                row.others_waited += usize::from(longest > WAITED);
                row.others_gap_ms = row.others_gap_ms.max(u64::try_from(longest.as_millis()).unwrap_or(u64::MAX));
                ensure!(longest < OTHERS_GAP_MAX, "{session} stood still for {longest:?} and nobody held it");
            }
            self.judged.insert(session);
        }
        Ok(())
    }
}

/// Kills the leader of one stream after the other, each `every`, for so long, on three servers under load.
pub(crate) async fn kill_leaders(length: Duration, every: Duration) -> anyhow::Result<()> {
    let mut fleet = Fleet::start(3, LEADERLESS).await?;
    let began = Instant::now();
    let mut kills = 0;
    for stream in LED.into_iter().cycle() {
        if began.elapsed() + every > length {
            break;
        }
        let next = Instant::now() + every;
        fleet.stage.kill_leader(stream).await?;
        kills += 1;
        sleep_until(next).await;
    }
    let lived = fleet.rest().await?;
    let mut longest = Duration::ZERO;
    for session in &lived {
        let commits = fleet.witnesses(Target::Server, Fault::Kill).judge(session, 1).await;
        let commits = commits.with_context(|| session.clone())?;
        let to = SystemTime::now();
        longest = longest.max(gap(&commits, SystemTime::UNIX_EPOCH, to));
    }
    judge::requests(&fleet.model.server.requests())?;
    #[allow(clippy::print_stderr, reason = "the figures of a long run")]
    {
        let (sessions, took) = (lived.len(), began.elapsed());
        eprintln!(
            "{kills} leaders killed in {took:?}: {sessions} sessions, all as they should be; longest pause {longest:?}"
        );
    }
    ensure!(lived.len() >= LEADERLESS, "only {} sessions came to their end", lived.len());
    Ok(())
}

fn stage_user(stage: &Stage) -> User {
    User { doors: stage.doors.clone(), starts: stage.starts.clone(), bus: stage.bus.clone() }
}

/// Whether an item is of this session.
fn of(item: &str, session: &str) -> bool {
    let key = subject::parse_control_key(item)
        .or_else(|| subject::parse_item(item).map(|item| item.key))
        .or_else(|| subject::parse_timer(item));
    key.is_some_and(|key| key.session.as_str() == session)
}

/// One session after the other; returns their names.
async fn keep_busy(user: User, stop: Arc<AtomicBool>) -> anyhow::Result<Vec<String>> {
    let mut lived = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let session = format!("other{:06}", NUMBER.fetch_add(1, Ordering::Relaxed));
        user.one_turn(&session).await?;
        lived.push(session);
        sleep(BETWEEN).await;
    }
    Ok(lived)
}
