//! A hundred jobs of several steps, done twice: once by agents that go on by themselves, once by agents that stop after
//! each reply. A scripted user says "continue" whenever an agent stops before its job is done, and counts how often.
//!
//! The model is scripted, with the habits of real ones: see [`script`]. The test measures the loop, not a model.

#![allow(clippy::print_stderr, reason = "the rates are printed")]

mod script;

use std::sync::Arc;

use ailoop_tests::cli::WorkDir;
use ailoop_tests::client::Ws;
use ailoop_tests::fleet::{TestFleet, key};
use ailoop_tests::judge;
use ailoop_tests::model::ModelServer;
use ailoop_tests::wait::soon;
use futures::stream::{self, StreamExt};
use serde_json::{Value, json};

use script::{Job, Scripted};

const JOBS: u64 = 100;
/// Jobs that are done at the same time.
const CONCURRENT: usize = 8;
/// Maximum number of times that the user says "continue" before the job is given up.
const NUDGES_MAX: u32 = 12;

/// The result of a job.
#[derive(Debug, Default)]
struct JobOutcome {
    done: bool,
    nudges: u32,
    /// Messages `continuation.progress` that the user saw.
    progress: u32,
    /// A turn was ended by a limit or an error.
    cut: Option<String>,
}

/// Lets an agent do a job over the WebSocket, and nudges it.
async fn run(url: &str, job: &Job, model: &'static str) -> anyhow::Result<JobOutcome> {
    let session = format!("{model}-{}", job.number);
    let mut ws = Ws::connect(url).await?;
    let mut start = json!({
        "session_id": session, "agent": job.agent, "model": model, "interactive": true, "prompt": job.task(),
    });
    if model == "without" {
        start["features"] = json!({"disable": ["continuation"]});
    }
    ws.ok("session.start", &start).await?;
    ws.ok("session.watch", &json!({"session_id": session})).await?;
    let mut outcome = JobOutcome::default();
    loop {
        let turn = soon("the end of a turn", ws.until_counting("turn.completed", "continuation.progress")).await??;
        let (turn, progress) = turn;
        outcome.progress += check(&progress, job)?;
        let data = &turn["params"]["data"];
        let text = data["final_response"].as_str().unwrap_or_default();
        if data["stop_reason"] != "completed" {
            outcome.cut = Some(data["stop_reason"].to_string());
        }
        if text.contains(&job.result()) {
            outcome.done = true;
            break;
        }
        if outcome.nudges >= NUDGES_MAX {
            break;
        }
        outcome.nudges += 1;
        ws.ok("session.send", &json!({"session_id": session, "text": "continue"})).await?;
    }
    ws.ok("session.stop", &json!({"session_id": session})).await?;
    Ok(outcome)
}

/// Each progress message has its documented form.
fn check(progress: &[Value], job: &Job) -> anyhow::Result<u32> {
    for message in progress {
        let params = &message["params"];
        anyhow::ensure!(params["agent_id"] == job.agent, "{message}");
        let (step, most) = (params["iteration"].as_u64(), params["max_iterations"].as_u64());
        anyhow::ensure!(step >= Some(1) && step <= most, "{message}");
        anyhow::ensure!(params["progress"]["steps_completed"].is_array(), "{message}");
    }
    Ok(u32::try_from(progress.len())?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_with_continuation_need_few_nudges() -> anyhow::Result<()> {
    let files = tempfile::tempdir()?;
    for name in ["parser.txt", "lexer.txt", "notes.txt"] {
        std::fs::write(files.path().join(name), format!("This is {name}.\n"))?;
    }
    let out = tempfile::tempdir()?;
    let scripted = Arc::new(Scripted::default());
    let server = ModelServer::start(move |request| scripted.reply(request)).await?;
    let models = [("with", server.base_url()), ("without", server.base_url())];
    let models: Vec<(&str, &str)> = models.iter().map(|(id, url)| (*id, url.as_str())).collect();
    let fleet = TestFleet::shipped_with_files(&models, files.path(), out.path()).await?;
    fleet.wait_for_tools(&["list_files", "read_file", "write_file"]).await?;
    let url = format!("ws://{}/ws", fleet.addresses().ws);

    let mut sums = Vec::new();
    for model in ["with", "without"] {
        let outcomes: Vec<(u64, anyhow::Result<JobOutcome>)> = stream::iter(0..JOBS)
            .map(|number| {
                let url = url.clone();
                async move { (number, run(&url, &Job::new(number), model).await) }
            })
            .buffer_unordered(CONCURRENT)
            .collect()
            .await;
        let (mut done, mut nudges, mut progress) = (0, 0, 0);
        for (number, outcome) in outcomes {
            let outcome = outcome.map_err(|error| error.context(format!("job {number} {model}")))?;
            if !outcome.done || outcome.cut.is_some() {
                eprintln!("job {number} {model}: {outcome:?}");
            }
            done += u32::from(outcome.done && outcome.cut.is_none());
            nudges += outcome.nudges;
            progress += outcome.progress;
        }
        eprintln!(
            "{model} continuation: {done} of {JOBS} done within their limits, {nudges} nudges, {progress} progress"
        );
        sums.push((done, nudges, progress));
    }
    let ((done, nudges, progress), (_, nudges_without, _)) = (sums[0], sums[1]);
    assert!(done >= 95, "only {done} jobs were done");
    assert!(nudges * 10 <= nudges_without, "{nudges} nudges, {nudges_without} without continuation");
    assert!(u64::from(progress) >= 3 * JOBS, "only {progress} messages of progress were seen");
    judge::requests(&server.requests())?;
    for number in (0..JOBS).step_by(10) {
        judge::log(&fleet.bus, &key(&format!("with-{number}"))?, 10).await?;
    }

    // The statistics of the fleet.
    let stats = WorkDir::new()?.run(&["stats", "--json", "--url", &fleet.url()]).await?;
    assert_eq!(stats.code, 0, "{}", stats.stderr);
    let rows: Vec<Value> = serde_json::from_str(&stats.stdout)?;
    let count = |model: &str, field: &str| -> u64 {
        let of = rows.iter().filter(|row| row["model"] == model);
        of.filter_map(|row| row[field].as_u64()).sum()
    };
    // A nudge after a limit or an error does not count as one after a premature end.
    assert!(count("with", "premature") <= u64::from(nudges), "{rows:#?}");
    assert!(count("without", "premature") > 9 * count("with", "premature"), "{rows:#?}");
    let printed = WorkDir::new()?.run(&["stats", "--url", &fleet.url()]).await?;
    eprintln!("{}", printed.stdout);
    for word in ["COMPLETED", "PREMATURE", "with", "without"] {
        assert!(printed.stdout.contains(word), "{word} is not in {}", printed.stdout);
    }
    fleet.end().await
}
