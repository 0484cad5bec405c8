//! A nats-server that is restored with an older store, under a running fleet: after a power cut that lost writes, or
//! from a backup of its volume. Everything committed after the copy is lost; the test checks what may follow from that.
//!
//! After the restore each session goes on to its end or reports what it lost, no command sent afterwards is lost, no
//! log has two histories, and no `at_most_once` call runs twice unless it was dispatched after the copy was taken.
//!
//! `make restore` runs every trial: all streams or one of them, from a copy of a stopped server and of a running one.
//! `AILOOP_RESTORE_ONLY` selects trials by name, such as `claims` or `all, running`; findings are appended to
//! `AILOOP_RESTORE_FILE`, one line of JSON for each trial, and the logs of processes are kept beside it.

mod trial;

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::ensure;
use serde_json::json;

use crate::restore::trial::{Snapshot, Trial, Variant};

/// Restored streams by their name in `AILOOP_RESTORE_ONLY`: all of them, or one.
const VARIANTS: [(&str, Option<&str>); 7] = [
    ("all", None),
    ("control", Some("AI_LOOP_CONTROL")),
    ("log", Some("AI_LOOP_LOG")),
    ("timer", Some("AI_LOOP_TIMER")),
    ("model", Some("AI_LOOP_MODEL")),
    ("tool", Some("AI_LOOP_TOOL")),
    ("claims", Some("KV_ai_loop_claims")),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_older_store_sessions_go_on_or_report_losses() -> anyhow::Result<()> {
    let only = configuration::env("AILOOP_RESTORE_ONLY").unwrap_or_default();
    let file = configuration::env("AILOOP_RESTORE_FILE").map(PathBuf::from);
    let (mut tried, mut wrong) = (0, Vec::new());
    for snapshot in [Snapshot::Stopped, Snapshot::Running] {
        for (name, stream) in VARIANTS {
            let name = format!("{name}, {snapshot}");
            if !name.contains(&only) {
                continue;
            }
            tried += 1;
            let trial = Trial::run(Variant { stream, snapshot }).await?;
            show(&format!("{name}: {}", if trial.findings.is_empty() { "ok" } else { "WRONG" }));
            for finding in &trial.findings {
                show(&format!("    {finding}"));
            }
            if let Some(file) = &file {
                file.parent().map_or(Ok(()), std::fs::create_dir_all)?;
                let mut lines = std::fs::File::options().create(true).append(true).open(file)?;
                writeln!(lines, "{}", json!({"trial": name, "findings": trial.findings, "notes": trial.notes}))?;
                if !trial.findings.is_empty() {
                    trial.keep_logs(&file.with_extension("failures").join(name.replace(", ", "-")))?;
                }
            }
            wrong.extend(trial.findings.iter().map(|finding| format!("{name}: {finding}")));
        }
    }
    ensure!(tried > 0, "AILOOP_RESTORE_ONLY={only} names no trial");
    ensure!(wrong.is_empty(), "{} findings in {tried} trials:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

#[allow(clippy::print_stderr, reason = "the progress of a long run")]
fn show(line: &str) {
    eprintln!("{line}");
}
