//! The crash matrix: every fault at every step of a session, under load, on one nats-server and on three.
//!
//! Each process runs behind a proxy that observes its messages. A fault is injected at one message of one session:
//! before it is forwarded, or after it was forwarded and before its answer. Afterwards the oracle checks the log
//! against the records of tools, model and proxies. After an older store the rules are those of
//! `ailoop_tests::restored`, since everything stored after the copy is lost.
//!
//! `make chaos` runs it at length: `AILOOP_CHAOS_FAULTS` faults in all (also those of former runs with the same file),
//! at most `AILOOP_CHAOS_HOURS`, on `AILOOP_CHAOS_NODES` (`1,3`) with `AILOOP_CHAOS_FLEETS` fleets at once, rows
//! appended to `AILOOP_CHAOS_FILE`, and a report beside it. `AILOOP_CHAOS_ONLY` selects trials by name, such as
//! `service: kill`. `AILOOP_CHAOS_SEED` chooses the trials: a number, or `random`; without it every run has the same
//! trials.

mod fixture;
mod fleet;
mod frame;
mod older_store;
mod oracle;
mod proxy;
mod recorded_model;
mod results_file;
mod step;
mod user;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use tokio::time::Instant;

use crate::chaos::results_file::{ResultsFile, Row, RunLimits, report};

/// Faults in a short run.
const FAULTS: usize = 9;
/// Fleets at the same time.
const FLEETS: usize = 3;
/// Older stores in a short run.
const OLDER_STORES: usize = 2;

/// Length of a short run that kills the leaders of streams, in seconds.
const LEADERS_SECONDS: u64 = 20;
/// Time between two kills.
const LEADERS_EVERY: Duration = Duration::from_secs(10);

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    configuration::env(name)?.parse().ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_step_with_any_fault_sessions_complete() -> anyhow::Result<()> {
    let scratch = tempfile::TempDir::with_prefix("ailoop-chaos-")?;
    let file = setting::<PathBuf>("AILOOP_CHAOS_FILE").unwrap_or_else(|| scratch.path().join("rows.jsonl"));
    let until =
        setting::<f64>("AILOOP_CHAOS_HOURS").map(|hours| Instant::now() + Duration::from_secs_f64(hours * 3600.0));
    let only = setting("AILOOP_CHAOS_ONLY").unwrap_or_default();
    let plan = RunLimits { faults: setting("AILOOP_CHAOS_FAULTS").unwrap_or(FAULTS), until, only };
    let seed = ailoop_tests::seed::of("AILOOP_CHAOS_SEED");
    let nodes = setting::<String>("AILOOP_CHAOS_NODES").unwrap_or_else(|| "1".to_owned());
    let nodes: Vec<usize> = nodes.split(',').map(str::parse).collect::<Result<_, _>>()?;
    let results_file = ResultsFile::open(&file, plan.clone(), seed)?;
    let before = results_file.rows().len();
    let failures = file.with_extension("failures");
    let fleets = 0..setting("AILOOP_CHAOS_FLEETS").unwrap_or(FLEETS);
    try_join_all(fleets.map(|n| fleet::run(&results_file, nodes[n % nodes.len()], &failures))).await?;
    let rows = results_file.rows();
    if setting::<PathBuf>("AILOOP_CHAOS_FILE").is_some() {
        std::fs::write(file.with_extension("md"), report(&rows)?)?;
    }
    let wrong: Vec<&Row> = rows[before..].iter().filter(|row| row.wrong.is_some()).collect();
    ensure!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
    ensure!(until.is_some() || rows.len() >= plan.faults, "only {} faults", rows.len());
    Ok(())
}

/// The short run of the matrix has few trials, so this fault has a test of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_restored_with_an_older_store_sessions_go_on() -> anyhow::Result<()> {
    let scratch = tempfile::TempDir::with_prefix("ailoop-chaos-")?;
    let plan = RunLimits { faults: OLDER_STORES, until: None, only: "older store".to_owned() };
    let results_file =
        ResultsFile::open(&scratch.path().join("rows.jsonl"), plan, ailoop_tests::seed::of("AILOOP_CHAOS_SEED"))?;
    try_join_all((0..OLDER_STORES).map(|_| fleet::run(&results_file, 1, scratch.path()))).await?;
    let wrong: Vec<Row> = results_file.rows().into_iter().filter(|row| row.wrong.is_some()).collect();
    ensure!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_killed_in_turn_sessions_complete() -> anyhow::Result<()> {
    let length = setting("AILOOP_LEADERS_SECONDS").unwrap_or(LEADERS_SECONDS);
    fleet::kill_leaders(Duration::from_secs(length), LEADERS_EVERY).await
}

#[test]
fn report_with_a_failed_trial_names_the_violation() -> anyhow::Result<()> {
    let row = |fault: &str, wrong: Option<&str>, resumed_ms| Row {
        nodes: 3,
        service: "gateway".to_owned(),
        step: "a model call comes".to_owned(),
        target: "service".to_owned(),
        fault: fault.to_owned(),
        stream: None,
        wrong: wrong.map(str::to_owned),
        resumed_ms,
        others: 1,
        others_waited: 0,
        others_gap_ms: 400,
        paid_again: 0,
    };
    let page = report(&[row("kill", None, 5_400), row("kill", Some("input lost"), 100), row("cut", None, 1_000)])?;
    let line = page.lines().find(|line| line.starts_with("| gateway | a model call comes")).context("its line")?;
    assert!(line.contains("| **1 of 2 wrong** |") && line.contains("| 1.0 |"), "{line}");
    assert!(page.contains("| service: kill | 2 | 1 | 0.1 | 5.4 | 5.4 | 0 of 2 | 0.4 | 0 |"), "{page}");
    assert!(page.contains("input lost"), "{page}");
    Ok(())
}
