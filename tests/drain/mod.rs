//! A rolling restart: every replica of every service gets SIGTERM, in turn, under load. Clients must not notice it: all
//! sessions complete. `make drain` also holds that none of them waits for an ack wait.
//!
//! `AILOOP_DRAIN_SESSIONS` and `AILOOP_DRAIN_EVERY` (seconds) make it larger: `make drain` has 100 sessions, and a
//! replica goes every 20 seconds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ailoop_tests::client::TestClient;
use ailoop_tests::durations;
use ailoop_tests::fleet::key;
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::process_fleet::{EdgeReplica, ProcessFleet, Replica};
use ailoop_tests::tool_server::{EFFECTS, ToolServer};
use ailoop_tests::wait::PATIENCE;
use ailoop_tool::Effect;
use anyhow::{Context, ensure};
use contract::commit::Commit;
use contract::event::{Event, StopReason};
use contract::tool::Outcome;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Services with two replicas, besides the edges.
const SERVICES: [&str; 3] = ["orchestrator", "gateway", "executor"];

/// Sessions at the same time, and seconds between two replicas, in a short run.
const SESSIONS: u64 = 24;
const EVERY: u64 = 1;
/// Model calls of a session; all but the last one call a tool.
const STEPS: usize = 5;
/// Duration of a model call: longer than a replica may take to end, so that running calls are handed over.
const THINKS: Duration = Duration::from_millis(1_500);
/// Drain time of a replica in seconds; then it returns its items.
const DRAIN: &str = "1";
/// Maximum delay of a call by its hand-over: far less than the ack wait of 5 s.
const HAND_OVER_MAX: Duration = Duration::from_secs(2);

fn setting(name: &str) -> Option<u64> {
    configuration::env(name)?.parse().ok()
}

fn thinking(request: &RecordedRequest) -> ScriptedReply {
    let replies = request.messages().iter().filter(|message| message["role"] == "assistant").count();
    let reply = ScriptedReply::text("Well. ").and_delay(THINKS);
    if replies + 1 >= STEPS {
        return reply.and_text("That is all.");
    }
    let effect = EFFECTS[replies % EFFECTS.len()];
    reply.and_calls(&[(effect.as_str(), json!({"mark": format!("{}", request.number)}))])
}

/// The current URLs of the edges.
#[derive(Clone, Default)]
struct EdgeUrls(Arc<Mutex<Vec<String>>>);

impl EdgeUrls {
    fn set(&self, n: usize, url: String) {
        let mut urls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if n == urls.len() { urls.push(url) } else { urls[n] = url }
    }

    fn any(&self, n: u64) -> String {
        let urls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        urls[usize::try_from(n).unwrap_or_default() % urls.len()].clone()
    }
}

/// Runs one session after the other and moves to the next edge when one goes away; returns their names.
async fn user(
    urls: EdgeUrls,
    number: u64,
    stop: Arc<AtomicBool>,
    moved: Arc<AtomicU64>,
) -> anyhow::Result<Vec<String>> {
    let mut sessions = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let session = format!("d{number}-{}", sessions.len());
        let mut tries = number;
        loop {
            let attempt = async {
                let client = TestClient::connect(&urls.any(tries)).await?;
                client.begin_as(&session, "begin", "go", &json!({})).await?;
                client.watch(&session).await?.to_end().await
            };
            match attempt.await {
                Ok(events) => {
                    judge::seqs(&events).with_context(|| session.clone())?;
                    break;
                }
                // A repeated start is handled once, and a new watch begins at the first event.
                Err(error) if tries < number + 50 => {
                    print_if_verbose(&format!("{session}: {error:#}"));
                    moved.fetch_add(1, Ordering::Relaxed);
                    tries += 1;
                    sleep(Duration::from_millis(50)).await;
                }
                Err(error) => return Err(error.context(session)),
            }
        }
        sessions.push(session);
    }
    Ok(sessions)
}

/// Prints a line if the test runs verbosely.
fn print_if_verbose(line: &str) {
    if setting("AILOOP_DRAIN_VERBOSE").is_some() {
        #[allow(clippy::print_stderr, reason = "asked for")]
        {
            eprintln!("{line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_restart_under_load_all_sessions_complete() -> anyhow::Result<()> {
    let sessions = setting("AILOOP_DRAIN_SESSIONS").unwrap_or(SESSIONS);
    let every = Duration::from_secs(setting("AILOOP_DRAIN_EVERY").unwrap_or(EVERY));
    let model = ModelServer::start(thinking).await?;
    let process_fleet = ProcessFleet::with(&[("test", &model.base_url())], &[("AILOOP__DRAIN_TIMEOUT", DRAIN)]).await?;
    let tool_server = ToolServer::of_every_effect(&process_fleet.nats.url()).await?;
    let mut replicas: Vec<(&str, Replica)> = Vec::new();
    for service in SERVICES.repeat(2) {
        replicas.push((service, process_fleet.spawn(service).await?));
    }
    process_fleet.wait_for_tools(&EFFECTS.map(Effect::as_str)).await?;
    let urls = EdgeUrls::default();
    let mut edges: Vec<EdgeReplica> = Vec::new();
    for n in 0..2 {
        edges.push(process_fleet.edge().await?);
        urls.set(n, edges[n].url());
    }

    let (stop, moved) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut users = JoinSet::new();
    for number in 0..sessions {
        users.spawn(user(urls.clone(), number, stop.clone(), moved.clone()));
    }
    let mut ended = Vec::new();
    sleep(every).await;
    for (service, replica) in &mut replicas {
        let from = Instant::now();
        replica.terminate(PATIENCE).await.with_context(|| format!("{service} does not end"))?;
        ended.push((*service, from.elapsed()));
        *replica = process_fleet.spawn(service).await?;
        sleep(every).await;
    }
    for (n, edge) in edges.iter_mut().enumerate() {
        let from = Instant::now();
        edge.replica.terminate(PATIENCE).await.context("an edge does not end")?;
        ended.push(("edge", from.elapsed()));
        *edge = process_fleet.edge().await?;
        urls.set(n, edge.url());
        sleep(every).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut names = Vec::new();
    while let Some(user) = users.join_next().await {
        names.extend(user??);
    }

    let mut longest = Gap::default();
    for name in &names {
        let gap = looks_undisturbed(&process_fleet, name).await.with_context(|| name.clone())?;
        if gap.time > longest.time {
            longest = gap;
        }
    }
    tool_server.check_ran_once()?;
    judge::requests(&model.requests())?;
    print_result(names.len(), moved.load(Ordering::Relaxed), longest.time, &ended);
    let what = format!("a call, of which {THINKS:?} are the model, {}", longest.between);
    durations::check(&what, longest.time, THINKS + HAND_OVER_MAX)
}

#[allow(clippy::print_stderr, reason = "the figures of a long run")]
fn print_result(sessions: usize, moved: u64, longest: Duration, ended: &[(&str, Duration)]) {
    eprintln!("{sessions} sessions of {STEPS} steps, all completed; clients moved {moved} times");
    eprintln!("longest time between two commits {longest:?}, of which {THINKS:?} are the model");
    for (service, took) in ended {
        eprintln!("{service} ended in {took:?}");
    }
}

/// The longest time between two commits of a session.
#[derive(Default)]
struct Gap {
    time: Duration,
    /// Names of the events before and after the gap.
    between: String,
}

/// Checks that a session shows no sign of the restart; returns the longest gap between two of its commits.
async fn looks_undisturbed(process_fleet: &ProcessFleet, session: &str) -> anyhow::Result<Gap> {
    let commits = judge::log(&process_fleet.bus, &key(session)?, 10).await?;
    for event in commits.iter().flat_map(|commit| &commit.events) {
        if let Event::ToolCallResult(result) = event {
            ensure!(result.outcome == Outcome::Ok, "a call ended as {:?}: {}", result.outcome, result.content);
        }
        if let Event::TurnCompleted(turn) = event {
            ensure!(turn.stop_reason == StopReason::Completed, "its turn ended by {:?}", turn.stop_reason);
        }
        if let Event::ModelCallFailed(failed) = event {
            anyhow::bail!("a model call failed: {}", failed.message);
        }
    }
    let print_result = |commit: &Commit| {
        // Only the name of each event, without its fields.
        let name = |event: &Event| format!("{event:?}").split(['(', ' ']).next().unwrap_or_default().to_owned();
        let events: Vec<String> = commit.events.iter().map(name).collect();
        format!("{} {}", commit.meta.time, events.join(" "))
    };
    let gaps = commits.windows(2).map(|pair| Gap {
        time: pair[1].meta.time.since(pair[0].meta.time),
        between: format!("session {session}, from {} to {}", print_result(&pair[0]), print_result(&pair[1])),
    });
    Ok(gaps.max_by_key(|gap| gap.time).unwrap_or_default())
}
