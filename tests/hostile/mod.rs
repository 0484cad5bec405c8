//! Hostile clients, tools and model servers, with sessions of others beside them.
//!
//! Each trial has a fleet of its own. Sessions of others run alone first, then beside the hostile party; afterwards the
//! memory of every process is read. The run prints a table. It fails if another session failed, a process ended or
//! exceeds its memory budget, other sessions took more than twice as long at p99, or a hostile party got data without
//! permission. A failed trial is reported with the others.
//!
//! Trials of access have nobody beside them: each one tries what a credential, a page or another user may not, and fails
//! if one try succeeds.
//!
//! `make hostile` runs every trial; `AILOOP_HOSTILE_ONLY` selects trials by name, `AILOOP_HOSTILE_SECONDS` is how long
//! each hostile party goes on, `AILOOP_HOSTILE_FILE` gets the table, and `AILOOP_HOSTILE_SEED` chooses damaged bytes.

mod attempts;
mod bystanders;
mod clients;
mod fleet;
mod issuer;
mod keyed_fleet;
mod listener;
mod local;
mod low_priority;
mod models;
mod nats;
mod reach;
mod repetition;
mod table;
mod tools;
mod trials;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;

use crate::hostile::table::{Row, table};
use crate::hostile::trials::{ACCESS_TRIALS, TRIALS};

/// Seconds of a hostile party: longer than the timeout of other sessions, so that none can just wait for its end.
const SECONDS: u64 = 30;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_party_beside_other_sessions_does_not_delay_them() -> anyhow::Result<()> {
    let only = configuration::env("AILOOP_HOSTILE_ONLY").unwrap_or_default();
    let seconds = configuration::env("AILOOP_HOSTILE_SECONDS").and_then(|seconds| seconds.parse().ok());
    let length = Duration::from_secs(seconds.unwrap_or(SECONDS));
    let seed = ailoop_tests::seed::of("AILOOP_HOSTILE_SEED");
    let mut rows: Vec<Row> = Vec::new();
    for trial in TRIALS.iter().filter(|trial| trial.name.contains(&only)) {
        rows.push(shown(fleet::run(trial, length, seed).await));
    }
    for trial in ACCESS_TRIALS.iter().filter(|trial| trial.name.contains(&only)) {
        rows.push(shown(attempts::run(trial).await));
    }
    ensure!(!rows.is_empty(), "AILOOP_HOSTILE_ONLY={only} names no trial");
    let table = table(&rows);
    show(&table);
    if let Some(file) = configuration::env("AILOOP_HOSTILE_FILE").map(PathBuf::from) {
        std::fs::write(file, &table)?;
    }
    let wrong = rows.iter().filter(|row| row.wrong.is_some()).count();
    ensure!(wrong == 0, "{wrong} of {} trials failed", rows.len());
    Ok(())
}

/// Prints the outcome of a trial that has ended.
fn shown(row: Row) -> Row {
    show(&format!("{}: {}", row.trial, row.wrong.as_deref().unwrap_or("ok")));
    row
}

#[allow(clippy::print_stderr, reason = "the progress of a long run")]
fn show(line: &str) {
    eprintln!("{line}");
}
