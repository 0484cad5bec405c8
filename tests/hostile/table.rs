//! The table that a run prints.

use std::fmt::Write as _;
use std::time::Duration;

/// The result of one trial.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    pub(crate) trial: String,
    /// Hostile inputs that were sent.
    pub(crate) inputs: u64,
    /// Number of inputs that were not refused, among those with individual answers.
    pub(crate) accepted: u64,
    /// Other sessions beside the hostile party.
    pub(crate) ok: usize,
    pub(crate) failed: usize,
    /// 99th percentile of other sessions, without and beside the hostile party.
    pub(crate) p99_alone: Duration,
    pub(crate) p99_beside: Duration,
    /// Resident bytes of each process afterwards, and its budget.
    pub(crate) memory: Vec<(String, u64, u64)>,
    /// Violations; `None` if the trial passed.
    pub(crate) wrong: Option<String>,
}

/// A page of Markdown.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut page =
        "| trial | inputs | accepted | others ok | failed | p99 alone | p99 beside | memory, MiB of budget | verdict |\n\
                    |---|--:|--:|--:|--:|--:|--:|---|---|\n"
            .to_owned();
    for row in rows {
        let mebibytes = |bytes: u64| bytes >> 20;
        let memory: Vec<String> = row
            .memory
            .iter()
            .map(|(process, held, budget)| format!("{process} {}/{}", mebibytes(*held), mebibytes(*budget)))
            .collect();
        // Trials of access have nobody beside them.
        let is_alone = row.memory.is_empty();
        let other = |value: String| if is_alone { "-".to_owned() } else { value };
        let seconds = |time: Duration| other(format!("{:.2} s", time.as_secs_f64()));
        // Writing to a string does not fail.
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            row.trial,
            row.inputs,
            row.accepted,
            other(row.ok.to_string()),
            other(row.failed.to_string()),
            seconds(row.p99_alone),
            seconds(row.p99_beside),
            other(memory.join(", ")),
            row.wrong.as_deref().unwrap_or("ok").replace(['|', '\n'], " "),
        );
    }
    page
}
