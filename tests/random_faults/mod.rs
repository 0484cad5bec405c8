//! Random faults: users that interfere, models that fail, processes that are killed or frozen, a nats-server that
//! restarts. Afterwards every log is checked.
//!
//! `AILOOP_RANDOM_FAULTS` sets how many faults; `AILOOP_RANDOM_FAULTS_SEED` chooses them: a number, which repeats the
//! choices of a run, though not its timing, or `random`.

use std::fmt::Write as _;
use std::time::Duration;

use ailoop_tests::client::{Control, TestClient};
use ailoop_tests::fleet::key;
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::process_fleet::{ProcessFleet, Replica};
use ailoop_tests::tool_server::{EFFECTS, ToolServer};
use ailoop_tool::{Effect, async_nats};
use anyhow::{Context, ensure};
use contract::commit::Commit;
use serde_json::{Value, json};
use simulation::rng::Rng;
use tokio::time::{Instant, sleep};

/// Sessions at the same time.
const SESSIONS: u64 = 6;
/// Faults in a short run.
const FAULTS: u64 = 8;
/// Log filter of the processes, detailed enough to find out why a session makes no progress.
const FILTER: &str = "info,bus=debug,loop_orchestrator=debug,model_gateway=debug,tool_executor=debug";
/// Steps of a turn.
const STEPS_MAX: u32 = 10;
/// Deadline for a session to become idle after the last fault.
const REST_MAX: Duration = Duration::from_secs(100);
/// The services of which two run.
const SERVICES: [&str; 3] = ["orchestrator", "gateway", "executor"];

fn setting(name: &str) -> Option<u64> {
    configuration::env(name)?.parse().ok()
}

async fn pause(rng: &mut Rng, most_ms: u64) {
    sleep(Duration::from_millis(rng.below(most_ms))).await;
}

/// A random reply: calls, signals, plain text, or a retryable failure.
fn scripted_reply(seed: u64, request: &RecordedRequest) -> ScriptedReply {
    let mut rng = Rng::new(seed ^ (request.number as u64) << 20);
    let delay = Duration::from_millis(rng.below(150));
    match rng.below(10) {
        0..4 => {
            let count = 1 + rng.below(3);
            let calls: Vec<(&str, Value)> = (0..count)
                .map(|n| (rng.pick(&EFFECTS).as_str(), json!({"mark": format!("{}-{n}", request.number)})))
                .collect();
            ScriptedReply::text("I call. ").and_delay(delay).and_calls(&calls)
        }
        4..6 => ScriptedReply::text("I go on. ")
            .and_delay(delay)
            .and_calls(&[("continuation", json!({"status": "CONTINUE"}))]),
        6 => ScriptedReply::status(503, "busy"),
        7 => ScriptedReply::text("broken ").and_delay(delay).and_break(),
        _ => ScriptedReply::text("That ").and_delay(delay).and_text("is all."),
    }
}

/// Repeats a command with its id until it is answered; a refusal is an answer.
async fn repeat_until_answered<T>(what: &str, asking: impl AsyncFn() -> anyhow::Result<T>) -> anyhow::Result<()> {
    let deadline = Instant::now() + REST_MAX;
    loop {
        let Err(error) = asking().await else { return Ok(()) };
        let refusal = format!("{error:#}");
        let refused = ["not_now", "session_ended", "too_many_waiting"].iter().any(|code| refusal.starts_with(code));
        if refused {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{what}: {refusal}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// A user of one session: sends messages, pauses and resumes at random times.
async fn user(client: TestClient, session: &str, seed: u64, actions: u64) -> anyhow::Result<()> {
    let mut rng = Rng::new(seed);
    let options = json!({"interactive": true});
    repeat_until_answered("start", async || client.begin_as(session, "begin", "go", &options).await).await?;
    for n in 0..actions {
        pause(&mut rng, 1_000).await;
        let id = format!("{session}-{n}");
        if rng.chance(60) {
            let mode = *rng.pick(&["steer", "queue", "interrupt"]);
            repeat_until_answered("send", async || client.send_as(session, &id, "more", mode).await).await?;
        } else {
            repeat_until_answered("pause", async || client.control_as(session, &id, Control::Pause).await).await?;
            pause(&mut rng, 800).await;
            let id = format!("{id}r");
            repeat_until_answered("resume", async || client.control_as(session, &id, Control::Resume).await).await?;
        }
    }
    Ok(())
}

/// Injects one fault; every process works again when it returns.
async fn fault(process_fleet: &mut ProcessFleet, replicas: &mut [Replica], rng: &mut Rng) -> anyhow::Result<()> {
    let which = usize::try_from(rng.below(replicas.len() as u64))?;
    match rng.below(10) {
        0..6 => {
            replicas[which].kill()?;
            pause(rng, 300).await;
            replicas[which] = process_fleet.spawn(SERVICES[which % SERVICES.len()]).await?;
        }
        6..9 => {
            replicas[which].freeze()?;
            pause(rng, 7_000).await;
            replicas[which].thaw()?;
        }
        _ => process_fleet.nats.restart().await?,
    }
    Ok(())
}

/// Waits until a session is idle, stops it, and checks its log.
async fn end_and_check(process_fleet: &ProcessFleet, client: &TestClient, session: &str) -> anyhow::Result<()> {
    repeat_until_answered("resume", async || client.control_as(session, "last-resume", Control::Resume).await).await?;
    let deadline = Instant::now() + REST_MAX;
    while client.phase(session).await? != "idle" {
        ensure!(Instant::now() < deadline, "{session} does not become idle: {}", state(process_fleet, session).await?);
        sleep(Duration::from_millis(50)).await;
    }
    repeat_until_answered("stop", async || client.control_as(session, "stop", Control::Stop).await).await?;
    let events = client.watch(session).await?.to_end().await?;
    judge::seqs(&events).with_context(|| session.to_owned())?;
    judge::log(&process_fleet.bus, &key(session)?, STEPS_MAX).await?;
    let inbox = process_fleet.bus.inbox(&key(session)?).await?;
    ensure!(matches!(&inbox, bus::Inbox::Messages(waiting) if waiting.is_empty()), "{session}: {inbox:?}");
    Ok(())
}

/// State of the work queues, and of the items of a session in them, for an error text.
async fn queues(process_fleet: &ProcessFleet, session: &str) -> anyhow::Result<String> {
    let server = async_nats::connect(process_fleet.nats.url()).await?;
    let mut text = String::new();
    for (stream, durable, items) in [
        ("AI_LOOP_MODEL", "model", format!("ai_loop.model.call.default.{session}.>")),
        ("AI_LOOP_TOOL", "tool", format!("ai_loop.tool.call.default.*.{session}.>")),
        ("AI_LOOP_TIMER", "due", format!("ai_timer.set.default.{session}.*")),
    ] {
        let consumer = server.request(format!("$JS.API.CONSUMER.INFO.{stream}.{durable}"), "".into()).await?;
        let consumer: Value = serde_json::from_slice(&consumer.payload)?;
        let body = json!({"last_by_subj": items}).to_string();
        let item = server.request(format!("$JS.API.STREAM.MSG.GET.{stream}"), body.into()).await?;
        let item: Value = serde_json::from_slice(&item.payload)?;
        let of = |name: &str| consumer[name].clone();
        writeln!(
            text,
            "{stream}: delivered {} ack_floor {} ack_pending {} redelivered {} pending {} waiting {}; item {} {} {}",
            of("delivered"),
            of("ack_floor"),
            of("num_ack_pending"),
            of("num_redelivered"),
            of("num_pending"),
            of("num_waiting"),
            item["message"]["subject"],
            item["message"]["seq"],
            item["message"]["time"],
        )?;
    }
    Ok(text)
}

/// State of a session that makes no progress, for an error text: open calls, waiting inputs, log lines.
async fn state(process_fleet: &ProcessFleet, session: &str) -> anyhow::Result<String> {
    let head = process_fleet.bus.head(&key(session)?, bus::Read::Leader).await?.context("no log")?;
    let waiting = match process_fleet.bus.inbox(&key(session)?).await? {
        bus::Inbox::Messages(waiting) => waiting.into_iter().map(|stored| stored.subject).collect(),
        bus::Inbox::TooMany => vec!["too many".to_owned()],
    };
    let queues = queues(process_fleet, session).await?;
    let logged = process_fleet.logged(&format!("default/{session}"))?;
    let last = &logged[logged.len().saturating_sub(60)..];
    let commits = process_fleet.bus.history(&key(session)?, 0).await?;
    let line = |(slot, commit): &(u64, Commit)| {
        let events: String = format!("{:?}", commit.events).chars().take(700).collect();
        format!("slot {slot}, {}: {events}", commit.meta.time)
    };
    let commits: Vec<String> = commits[commits.len().saturating_sub(12)..].iter().map(line).collect();
    Ok(format!("{:?}, inbox {waiting:?}\n{queues}\n{}\n{}", head.meta, commits.join("\n"), last.join("\n")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_faults_leave_correct_logs() -> anyhow::Result<()> {
    let seed = ailoop_tests::seed::of("AILOOP_RANDOM_FAULTS_SEED");
    run_faults(seed, setting("AILOOP_RANDOM_FAULTS").unwrap_or(FAULTS)).await.with_context(|| format!("seed {seed}"))
}

async fn run_faults(seed: u64, faults: u64) -> anyhow::Result<()> {
    let mut rng = Rng::new(seed);
    let model = ModelServer::start(move |request| scripted_reply(seed, request)).await?;
    let filter = ("AILOOP__TELEMETRY__FILTER", FILTER);
    let mut process_fleet = ProcessFleet::with(&[("test", &model.base_url())], &[filter]).await?;
    let tool_server = ToolServer::of_every_effect(&process_fleet.nats.url()).await?;
    let mut replicas = Vec::new();
    for service in SERVICES.repeat(2) {
        replicas.push(process_fleet.spawn(service).await?);
    }
    process_fleet.wait_for_tools(&EFFECTS.map(Effect::as_str)).await?;
    let edge = process_fleet.edge().await?;
    let client = edge.client().await?;

    let sessions: Vec<String> = (0..SESSIONS).map(|n| format!("s{n}")).collect();
    let users = sessions.iter().map(|session| user(client.clone(), session, rng.number(), faults)).collect::<Vec<_>>();
    let faults = async {
        for _ in 0..faults {
            pause(&mut rng, 500).await;
            fault(&mut process_fleet, &mut replicas, &mut rng).await?;
        }
        Ok(())
    };
    tokio::try_join!(futures::future::try_join_all(users), faults)?;
    for session in &sessions {
        end_and_check(&process_fleet, &client, session).await?;
    }
    judge::requests(&model.requests())?;
    tool_server.check_ran_once()
}
