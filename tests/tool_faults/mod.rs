//! Tools in three languages, two replicas of each, under two hundred sessions at once, while replicas of tools and
//! executors are killed at random. Afterwards the records of the tools are compared with the results in the sessions: a
//! note is stored once, a bell rings at most once, and a call with an unknown outcome is reported as unknown.
//!
//! `AILOOP_TOOL_FAULTS_KILLS` sets how many are killed, `AILOOP_TOOL_FAULTS_SESSIONS` how many sessions there are, and
//! `AILOOP_TOOL_FAULTS_SEED` repeats the choices of a run, though not its timing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ailoop_tests::client::{ReceivedEvent, TestClient};
use ailoop_tests::examples::{Examples, Language};
use ailoop_tests::fleet::key;
use ailoop_tests::judge;
use ailoop_tests::model::{ModelServer, RecordedRequest, ScriptedReply};
use ailoop_tests::process_fleet::{ProcessFleet, Replica};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use simulation::rng::Rng;
use tokio::process::Child;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// Sessions at the same time.
const SESSIONS: u64 = 200;
/// Number of processes that are killed in a run.
const KILLS: u64 = 60;
/// Steps with tool calls of a session.
const STEPS: usize = 4;
const EXECUTORS: usize = 3;
/// Deadline for all sessions to end after the last kill.
const REST_MAX: Duration = Duration::from_secs(150);

fn setting(name: &str) -> Option<u64> {
    configuration::env(name)?.parse().ok()
}

/// A replica of a tool.
struct RpcServer {
    language: Language,
    tool: &'static str,
    process: Child,
}

/// The result of a call as the session got it.
#[derive(Debug, Clone)]
struct ReportedCall {
    tool: String,
    outcome: String,
    code: String,
    content: String,
}

/// A model that calls tools of every language and effect class, some in parallel, and then ends.
fn busy(seed: u64, languages: &[Language], request: &RecordedRequest) -> ScriptedReply {
    let done = request.messages().iter().filter(|message| message["role"] == "assistant").count();
    if done >= STEPS {
        return ScriptedReply::signal("Done.", "TERMINATE");
    }
    let mut rng = Rng::new(seed ^ ((request.number as u64) << 20));
    let calls: Vec<(&str, Value)> = (0..=rng.below(4))
        .map(|number| {
            let language = *rng.pick(languages);
            match rng.below(3) {
                0 => {
                    let (tool, arguments) = language.pure();
                    let mut arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
                    // Arguments are unique, so that the loop detection does not stop the session.
                    for field in ["text", "title"] {
                        if let Some(text) = arguments.get_mut(field) {
                            *text = json!(format!("{}-{number}", request.number));
                        }
                    }
                    (tool, arguments)
                }
                1 => (language.note(), json!({"text": format!("{}-{number}", request.number)})),
                _ => (language.bell(), json!({"seconds": rng.below(3)})),
            }
        })
        .collect();
    ScriptedReply::text("I call. ").and_calls(&calls)
}

/// Kills a random process and starts it again, some hundred times a minute.
async fn kill(
    rng: &mut Rng,
    process_fleet: &ProcessFleet,
    examples: &[(Language, Examples)],
    tools: &mut [RpcServer],
    executors: &mut [Replica],
    kills: u64,
) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut killed: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..kills {
        sleep(Duration::from_millis(100 + rng.below(500))).await;
        if rng.chance(25) {
            let at = usize::try_from(rng.below(executors.len() as u64))?;
            executors[at].kill()?;
            executors[at] = process_fleet.spawn("executor").await?;
            *killed.entry("executor".to_owned()).or_default() += 1;
            continue;
        }
        let at = usize::try_from(rng.below(tools.len() as u64))?;
        let RpcServer { language, tool, process } = &mut tools[at];
        process.kill().await?;
        let (_, home) = examples.iter().find(|(other, _)| other == language).context("a language")?;
        *process = home.start(tool)?;
        *killed.entry((*tool).to_owned()).or_default() += 1;
    }
    Ok(killed)
}

/// Runs one session to its end; returns its name and events.
async fn session(client: TestClient, name: String) -> anyhow::Result<(String, Vec<ReceivedEvent>)> {
    client.start(&name, "Call the tools.").await?;
    let events = client.watch(&name).await?.to_end().await.with_context(|| name.clone())?;
    Ok((name, events))
}

/// The results of a session by call id.
fn reported_calls(name: &str, events: &[ReceivedEvent]) -> BTreeMap<String, ReportedCall> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let results = events.iter().filter(|event| event.topic == "tool_call.result_processed");
    let call = |result: &ReceivedEvent| {
        let data = &result.data;
        let call = ReportedCall {
            tool: text(&data["tool"]),
            outcome: text(&data["outcome"]),
            code: text(&data["code"]),
            content: text(&data["content"]),
        };
        (format!("{name}-{}", text(&data["call"])), call)
    };
    results.map(call).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_killed_under_load_results_agree_with_effects() -> anyhow::Result<()> {
    let seed = ailoop_tests::seed::of("AILOOP_TOOL_FAULTS_SEED");
    let (kills, sessions) = (
        setting("AILOOP_TOOL_FAULTS_KILLS").unwrap_or(KILLS),
        setting("AILOOP_TOOL_FAULTS_SESSIONS").unwrap_or(SESSIONS),
    );
    eprintln!("{sessions} sessions, {kills} kills");
    let homes = async |nats: &str| {
        let nats = nats.to_owned();
        tokio::task::spawn_blocking(move || {
            let found = Language::ALL.into_iter().map(|language| Ok((language, Examples::find(language, &nats)?)));
            found.collect::<anyhow::Result<Vec<_>>>()
        })
        .await?
    };
    // The fleet needs the address of the model before the available languages are known.
    let languages = std::sync::Arc::new(std::sync::OnceLock::new());
    let known = languages.clone();
    let model = ModelServer::start(move |request| busy(seed, known.get().map_or(&[], Vec::as_slice), request)).await?;
    let process_fleet = ProcessFleet::start(&[("test", &model.base_url())]).await?;
    let examples: Vec<(Language, Examples)> = homes(&process_fleet.nats.url())
        .await?
        .into_iter()
        .filter_map(|(language, found)| Some((language, found?)))
        .collect();
    let found: Vec<Language> = examples.iter().map(|(language, _)| *language).collect();
    ensure!(languages.set(found.clone()).is_ok() && !found.is_empty(), "there is no language");

    let mut tools = Vec::new();
    let mut names = BTreeSet::new();
    for (language, home) in &examples {
        for tool in [language.pure().0, language.note(), language.bell()] {
            names.insert(tool);
            for _ in 0..2 {
                tools.push(RpcServer { language: *language, tool, process: home.start(tool)? });
            }
        }
    }
    let mut others = Vec::new();
    for service in ["orchestrator", "orchestrator", "gateway", "gateway"] {
        others.push(process_fleet.spawn(service).await?);
    }
    let mut executors = Vec::new();
    for _ in 0..EXECUTORS {
        executors.push(process_fleet.spawn("executor").await?);
    }
    process_fleet.wait_for_tools(&names.iter().copied().collect::<Vec<_>>()).await?;
    let edge = process_fleet.edge().await?;

    let (client, mut running) = (edge.client().await?, JoinSet::new());
    for number in 0..sessions {
        running.spawn(session(client.clone(), format!("s{number}")));
    }
    let mut rng = Rng::new(seed);
    let began = Instant::now();
    let killed = kill(&mut rng, &process_fleet, &examples, &mut tools, &mut executors, kills).await?;
    let faults_took = began.elapsed();
    let ends = async {
        let mut all = Vec::new();
        while let Some(ended) = running.join_next().await {
            all.push(ended??);
        }
        anyhow::Ok(all)
    };
    let all = timeout(REST_MAX, ends).await.context("a session does not end")??;
    eprintln!("killed in {faults_took:.1?}: {killed:?}; all sessions ended after {:.1?}", began.elapsed());

    let mut calls: BTreeMap<String, ReportedCall> = BTreeMap::new();
    for (name, events) in &all {
        judge::seqs(events)?;
        judge::log(&process_fleet.bus, &key(name)?, 10).await?;
        calls.extend(reported_calls(name, events));
    }
    judge::requests(&model.requests())?;
    let mut outcomes: BTreeMap<(String, String), usize> = BTreeMap::new();
    for ReportedCall { tool, outcome, .. } in calls.values() {
        *outcomes.entry((tool.clone(), outcome.clone())).or_default() += 1;
    }
    for ((tool, outcome), times) in &outcomes {
        eprintln!("{tool:<14} {outcome:<8} {times}");
    }
    for (language, home) in &examples {
        notes(*language, home, &calls)?;
        bells(*language, home, &calls)?;
        pure(*language, &calls)?;
    }
    ensure!(calls.len() > usize::try_from(sessions)?, "only {} calls were made", calls.len());
    Ok(())
}

/// Returns the call as its session reports it, by the key that the tool got. The end of the key tells the call from others
/// of an earlier session, or of another tenant.
fn call_of(key: &str) -> &str {
    key.rsplit_once('-').map_or(key, |(call, _)| call)
}

/// Checks that each note is stored once under its call id, and that every successful call has its note.
fn notes(language: Language, home: &Examples, calls: &BTreeMap<String, ReportedCall>) -> anyhow::Result<()> {
    let is_own = |reported: &ReportedCall| reported.tool == language.note();
    let mut witnessed: BTreeMap<String, usize> = BTreeMap::new();
    for effect in home.effects()?.into_iter().filter(|effect| effect.tool == language.note()) {
        *witnessed.entry(call_of(&effect.call).to_owned()).or_default() += 1;
    }
    let twice: Vec<_> = witnessed.iter().filter(|(_, times)| **times > 1).collect();
    ensure!(twice.is_empty(), "{}: notes stored twice: {twice:?}", language.note());
    let kept: BTreeMap<String, String> =
        home.notes()?.into_iter().map(|(key, text)| (call_of(&key).to_owned(), text)).collect();
    for (call, reported) in calls.iter().filter(|(_, reported)| is_own(reported)) {
        ensure!(reported.outcome != "unknown", "{call} of an idempotent tool is unknown: {reported:?}");
        ensure!(
            reported.outcome != "ok" || kept.contains_key(call),
            "the result of {call} is ok, but its note is missing: {reported:?}"
        );
    }
    let stray: Vec<&String> = kept.keys().filter(|call| !calls.get(*call).is_some_and(is_own)).collect();
    ensure!(stray.is_empty(), "notes without a call: {stray:?}");
    Ok(())
}

/// Checks that a bell rings at most once for a call, once if the call succeeded, and never if it failed.
fn bells(language: Language, home: &Examples, calls: &BTreeMap<String, ReportedCall>) -> anyhow::Result<()> {
    let mut rang: BTreeMap<String, usize> = BTreeMap::new();
    for effect in home.effects()?.into_iter().filter(|effect| effect.tool == language.bell()) {
        *rang.entry(call_of(&effect.call).to_owned()).or_default() += 1;
    }
    let mut unknown = [0, 0];
    for (call, reported) in calls.iter().filter(|(_, reported)| reported.tool == language.bell()) {
        let times = rang.remove(call).unwrap_or(0);
        match reported.outcome.as_str() {
            "ok" => ensure!(times == 1, "the result of {call} is ok, but it rang {times} times"),
            "unknown" => {
                ensure!(times <= 1, "{call} rang {times} times");
                unknown[times] += 1;
            }
            // NATS reported that no tool was subscribed.
            "error" => ensure!(times == 0, "{call} failed, but rang {times} times: {reported:?}"),
            other => anyhow::bail!("{call} is {other}: {reported:?}"),
        }
    }
    ensure!(rang.is_empty(), "rang without a call: {rang:?}");
    eprintln!("{}: of the unknown ones {} had rung, {} had not", language.bell(), unknown[1], unknown[0]);
    Ok(())
}

/// Checks that every call of a pure tool succeeded, or found no tool.
fn pure(language: Language, calls: &BTreeMap<String, ReportedCall>) -> anyhow::Result<()> {
    for (call, reported) in calls.iter().filter(|(_, reported)| reported.tool == language.pure().0) {
        let gone = reported.code == "no_tool_available" || reported.code == "unavailable";
        ensure!(reported.outcome == "ok" || gone, "{call}: {reported:?} {}", reported.content);
    }
    Ok(())
}
