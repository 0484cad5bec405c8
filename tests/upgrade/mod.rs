//! A rolling upgrade: an older and the newer binary share three nats-servers, and every replica of every service is
//! replaced, one by one, under load: by the newer version, back by the older one, and by the newer one again.
//!
//! Most sessions have two turns. Two last as long as the run: they begin with a history, some of their turns are called
//! off, and each fills more than a page before the first replica is replaced, so that snapshots of both versions are in
//! their logs.
//!
//! Nothing may be lost: every session ends, no input is left over, no dead letter is written, no `at_most_once` call
//! runs twice, and each log folds to what its writers saw. The older version does not change what the newer one wrote:
//! if their folds differ, no commit of an older fold follows one of a newer fold.
//!
//! `make upgrade OLD=<path>` or `make upgrade OLD_REV=<revision>` runs it. `AILOOP_UPGRADE_OLD` is the path of the
//! older binary, `AILOOP_UPGRADE_SESSIONS` how many sessions run at the same time, `AILOOP_UPGRADE_EVERY` the seconds
//! between two replacements.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ailoop_tests::cli;
use ailoop_tests::client::Ws;
use ailoop_tests::fleet::{key, wait_for_tools};
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::nats::NatsCluster;
use ailoop_tests::process_fleet::{EdgeReplica, Launcher, Replica};
use ailoop_tests::tool_server::{EFFECTS, ToolServer};
use ailoop_tool::Effect;
use anyhow::{Context, bail, ensure};
use bus::{Bus, Inbox, NatsConfig, Read};
use contract::TenantId;
use contract::commit::{Commit, Phase};
use contract::event::{Event, StopReason};
use contract::limits::SLOTS_PER_PAGE;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// The services of which two run, in the order in which docs/deployment.md replaces them.
const SERVICES: [&str; 5] = ["composer", "gateway", "executor", "edge", "orchestrator"];
/// Sessions at the same time, and seconds between two replacements, in a short run.
const SESSIONS: u64 = 8;
const EVERY: u64 = 2;
/// Beginning of the names of the sessions that last as long as the run.
const LONG: &str = "long";
/// Drain time of a replica in seconds; then it returns its items.
const DRAIN: &str = "3";
/// Deadline for a replica to end after SIGTERM.
const END_MAX: Duration = Duration::from_secs(30);
/// Timeout of one attempt of a command.
const TRY_MAX: Duration = Duration::from_secs(8);
/// Deadline of each wait. A session that the newer version wrote waits for the newer version.
const WAIT_MAX: Duration = Duration::from_mins(5);
/// Pause between two reads of the log.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Duration of a model call.
const THINKS: Duration = Duration::from_millis(300);
/// Steps that a turn may have.
const STEPS_MAX: u32 = 10;

/// Binary that a replica runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Old,
    New,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Old => "old",
            Self::New => "new",
        })
    }
}

fn setting(name: &str) -> Option<u64> {
    configuration::env(name)?.parse().ok()
}

/// The current URLs of the edges.
#[derive(Clone, Default)]
struct EdgeUrls(Arc<Mutex<[String; 2]>>);

impl EdgeUrls {
    fn set(&self, number: usize, url: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[number] = url;
    }

    fn get(&self, number: usize) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)[number % 2].clone()
    }
}

/// The fleet while it is upgraded.
struct Fleet {
    cluster: NatsCluster,
    bus: Bus,
    site: Launcher,
    old: PathBuf,
    new: PathBuf,
    edges: EdgeUrls,
    replicas: Vec<(&'static str, usize, Replica)>,
}

impl Fleet {
    async fn start(old: &Path, model: &ModelServer) -> anyhow::Result<Self> {
        let cluster = NatsCluster::start3().await?;
        let bus = cluster.ready().await?;
        let site = Launcher::new(&[("test", &model.base_url())], &[("AILOOP__DRAIN_TIMEOUT", DRAIN)])?;
        let (old, new, edges) = (old.to_owned(), cli::binary()?, EdgeUrls::default());
        let mut fleet = Self { cluster, bus, site, old, new, edges, replicas: Vec::new() };
        for service in SERVICES {
            for number in 0..2 {
                let replica = fleet.spawn(Version::Old, service, number).await?;
                fleet.replicas.push((service, number, replica));
            }
        }
        Ok(fleet)
    }

    fn nats(&self, number: usize) -> NatsConfig {
        self.cluster.config(number)
    }

    async fn spawn(&self, version: Version, service: &str, number: usize) -> anyhow::Result<Replica> {
        let binary = match version {
            Version::Old => &self.old,
            Version::New => &self.new,
        };
        let replica = self.site.spawn_binary(binary, service, &self.nats(number)).await;
        let replica = replica.with_context(|| format!("{service} of the {version} version"))?;
        if service != "edge" {
            return Ok(replica);
        }
        let edge = EdgeReplica::of(replica)?;
        self.edges.set(number, edge.ws_url());
        Ok(edge.replica)
    }

    /// Replaces every replica, one by one.
    async fn roll(&mut self, to: Version, every: Duration) -> anyhow::Result<()> {
        for at in 0..self.replicas.len() {
            let (service, number, replica) = &mut self.replicas[at];
            let (service, number) = (*service, *number);
            replica.terminate(END_MAX).await.with_context(|| format!("{service} does not end"))?;
            self.replicas[at].2 = self.spawn(to, service, number).await?;
            sleep(every).await;
        }
        Ok(())
    }
}

/// Two steps with calls, then an answer.
fn reply(request: &RecordedRequest) -> ScriptedReply {
    let since = request.messages().iter().rev().take_while(|message| message["role"] != "user");
    let step = since.filter(|message| message["role"] == "assistant").count();
    let begun = ScriptedReply::text("I look. ").and_delay(THINKS);
    let Some(effect) = EFFECTS.get(step) else { return begun.and_text("That is all.") };
    begun.and_calls(&[(effect.as_str(), json!({"mark": format!("{}-{step}", request.number)}))])
}

/// A client that repeats each command under its id, at the next edge, until it is answered.
#[derive(Clone)]
struct User {
    edges: EdgeUrls,
    bus: Bus,
}

/// A command, with an id that is unique within the session.
#[derive(Debug, Clone, Copy)]
enum Command {
    Start,
    /// The same, with a history.
    StartWithHistory,
    Message(usize),
    CancelTurn(usize),
    Stop,
}

impl Command {
    /// Sends it as JSON, whose names stay the same in all versions.
    async fn send(self, edge: &str, session: &str) -> anyhow::Result<()> {
        let (method, id) = match self {
            Self::Start | Self::StartWithHistory => ("session.start", "begin".to_owned()),
            Self::Message(turn) => ("session.send", format!("more-{turn}")),
            Self::CancelTurn(turn) => ("session.cancel_turn", format!("cancel-{turn}")),
            Self::Stop => ("session.stop", "end".to_owned()),
        };
        let mut params = json!({"session_id": session, "command_id": id});
        if method == "session.start" {
            (params["prompt"], params["interactive"]) = ("go".into(), true.into());
        }
        match self {
            Self::StartWithHistory => {
                params["messages"] =
                    json!([{"role": "user", "content": "6 by 7?"}, {"role": "assistant", "content": "42."}]);
            }
            Self::Message(_) => (params["content"], params["mode"]) = ("go on".into(), "queue".into()),
            Self::Start | Self::CancelTurn(_) | Self::Stop => {}
        }
        Ws::connect(edge).await?.ok(method, &params).await.map(drop)
    }
}

impl User {
    async fn send(&self, session: &str, command: Command) -> anyhow::Result<()> {
        let (deadline, mut last, mut edge) = (Instant::now() + WAIT_MAX, String::new(), 0);
        while Instant::now() < deadline {
            match timeout(TRY_MAX, command.send(&self.edges.get(edge), session)).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => last = format!("{error:#}"),
                Err(_) => "no answer".clone_into(&mut last),
            }
            // On a busy machine the turn may end before the command that cancels it.
            if matches!(command, Command::CancelTurn(_)) && last.contains("not_now") {
                return Ok(());
            }
            edge += 1;
            sleep(LOOK_EVERY).await;
        }
        bail!("{command:?} is not answered: {last}")
    }

    async fn until(&self, session: &str, wanted: &str, fits: impl Fn(&[Commit]) -> bool) -> anyhow::Result<()> {
        let (key, deadline) = (key(session)?, Instant::now() + WAIT_MAX);
        loop {
            let commits = self.bus.history(&key, 0).await.unwrap_or_default();
            let commits: Vec<Commit> = commits.into_iter().map(|(_, commit)| commit).collect();
            if fits(&commits) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{session}: never {wanted}: {:?}", commits.last());
            sleep(LOOK_EVERY).await;
        }
    }

    /// Runs a session of two turns, then stops it.
    async fn session(&self, session: &str) -> anyhow::Result<()> {
        self.send(session, Command::Start).await?;
        self.until(session, "a first turn", |commits| turns(commits).len() == 1).await?;
        self.send(session, Command::Message(1)).await?;
        self.until(session, "a second turn", |commits| turns(commits).len() == 2).await?;
        self.stop(session).await
    }

    async fn stop(&self, session: &str) -> anyhow::Result<()> {
        self.send(session, Command::Stop).await?;
        let ended = |commits: &[Commit]| commits.last().is_some_and(|last| last.meta.phase == Phase::Ended);
        self.until(session, "its end", ended).await
    }

    /// Runs one session until the run ends, and calls off each fourth turn; returns its name.
    async fn long_session(self, session: String, stop: Arc<AtomicBool>) -> anyhow::Result<Vec<String>> {
        self.send(&session, Command::StartWithHistory).await?;
        let mut turn = 1;
        loop {
            self.until(&session, "a turn", |commits| turns(commits).len() == turn).await?;
            if stop.load(Ordering::Relaxed) {
                break;
            }
            self.send(&session, Command::Message(turn)).await?;
            turn += 1;
            if turn.is_multiple_of(4) {
                self.until(&session, "the begin of a turn", |commits| started(commits) == turn).await?;
                self.send(&session, Command::CancelTurn(turn)).await?;
            }
        }
        self.stop(&session).await?;
        Ok(vec![session])
    }

    /// Runs one session after the other; returns their names.
    async fn sessions(self, number: u64, stop: Arc<AtomicBool>) -> anyhow::Result<Vec<String>> {
        let mut names = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let session = format!("u{number}-{}", names.len());
            self.session(&session).await.with_context(|| session.clone())?;
            names.push(session);
        }
        Ok(names)
    }
}

fn started(commits: &[Commit]) -> usize {
    let events = commits.iter().flat_map(|commit| &commit.events);
    events.filter(|event| event.turn_started().is_some()).count()
}

fn turns(commits: &[Commit]) -> Vec<StopReason> {
    let events = commits.iter().flat_map(|commit| &commit.events);
    events
        .filter_map(|event| {
            let Event::TurnCompleted(turn) = event else { return None };
            Some(turn.stop_reason)
        })
        .collect()
}

/// Checks that nothing of a session is lost and no older fold follows a newer one; returns how often the fold changed.
async fn judge_session(bus: &Bus, session: &str) -> anyhow::Result<usize> {
    let key = key(session)?;
    let commits = judge::log(bus, &key, STEPS_MAX).await?;
    let ends = turns(&commits);
    let is_expected = if session.starts_with(LONG) {
        ends.iter().all(|end| matches!(end, StopReason::Completed | StopReason::Stopped))
    } else {
        ends == [StopReason::Completed; 2]
    };
    ensure!(is_expected, "its turns ended as {ends:?}");
    let mut changes = 0;
    for (before, after) in commits.iter().zip(commits.iter().skip(1)) {
        let (before, after) = (&before.meta, &after.meta);
        ensure!(
            after.fold >= before.fold,
            "a commit of fold {} follows one of fold {}: {}",
            after.fold,
            before.fold,
            after.commit
        );
        changes += usize::from(after.fold != before.fold);
    }
    let head = bus.head(&key, Read::Leader).await?.context("its head")?;
    ensure!(head.meta.open.is_empty(), "calls are open: {:?}", head.meta.open);
    match bus.inbox(&key).await? {
        Inbox::Messages(waiting) => {
            let waiting: Vec<String> = waiting.into_iter().map(|stored| stored.subject).collect();
            ensure!(waiting.is_empty(), "inputs are left over: {waiting:?}");
        }
        Inbox::TooMany => bail!("too many inputs are left over"),
    }
    Ok(changes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_upgrade_and_back_nothing_is_lost() -> anyhow::Result<()> {
    let old = configuration::env("AILOOP_UPGRADE_OLD").map(PathBuf::from);
    let old = old.context("AILOOP_UPGRADE_OLD is not set: name the older binary, as `make upgrade OLD=<path>` does")?;
    ensure!(old.is_file(), "{} is no file", old.display());
    let sessions = setting("AILOOP_UPGRADE_SESSIONS").unwrap_or(SESSIONS);
    let every = Duration::from_secs(setting("AILOOP_UPGRADE_EVERY").unwrap_or(EVERY));
    let model = ModelServer::start(reply).await?;
    let mut fleet = Fleet::start(&old, &model).await?;
    let tool_server = ToolServer::of_every_effect(&fleet.nats(0).url).await?;
    wait_for_tools(&fleet.bus, &EFFECTS.map(Effect::as_str)).await?;

    let stop = Arc::new(AtomicBool::new(false));
    let mut users = JoinSet::new();
    let user = User { edges: fleet.edges.clone(), bus: fleet.bus.clone() };
    for number in 0..sessions {
        users.spawn(user.clone().sessions(number, stop.clone()));
    }
    let long: Vec<String> = (0..2).map(|number| format!("{LONG}{number}")).collect();
    for name in &long {
        users.spawn(user.clone().long_session(name.clone(), stop.clone()));
    }
    for name in &long {
        let paged = |commits: &[Commit]| commits.len() as u64 > SLOTS_PER_PAGE + 4;
        user.until(name, "a second page", paged).await?;
    }
    for to in [Version::New, Version::Old, Version::New] {
        let from = Instant::now();
        fleet.roll(to, every).await?;
        show(&format!("every replica is of the {to} version after {:.1?}", from.elapsed()));
    }
    stop.store(true, Ordering::Relaxed);
    let mut names = Vec::new();
    while let Some(user) = users.join_next().await {
        names.extend(user??);
    }

    let (mut wrong, mut changes) = (Vec::new(), 0);
    for name in &names {
        match judge_session(&fleet.bus, name).await {
            Ok(more) => changes += more,
            Err(error) => wrong.push(format!("{name}: {error:#}")),
        }
    }
    let dead = fleet.bus.dead_letters(&TenantId::default(), None).await?.context("too many dead letters")?;
    wrong.extend(dead.iter().map(|(at, letter)| format!("dead letter {at:?}: {}", letter.reason)));
    if let Err(error) = tool_server.check_ran_once() {
        wrong.push(format!("{error:#}"));
    }
    if let Err(error) = judge::requests(&model.requests()) {
        wrong.push(format!("{error:#}"));
    }
    show(&format!("{} sessions, {changes} changes of the fold within a session", names.len()));
    if !wrong.is_empty()
        && let Some(to) = configuration::env("AILOOP_UPGRADE_LOGS")
    {
        fleet.site.keep_logs(Path::new(&to))?;
    }
    ensure!(wrong.is_empty(), "{} findings in {} sessions:\n{}", wrong.len(), names.len(), wrong.join("\n"));
    Ok(())
}

#[allow(clippy::print_stderr, reason = "the progress of a long run")]
fn show(line: &str) {
    eprintln!("{line}");
}
