//! The trials of the crash matrix and their results: one line of JSON each, so that a later run continues; and the
//! report.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use simulation::rng::Rng;
use tokio::time::Instant;

use crate::chaos::step::{FAULTS, Fault, STEPS, Step, Target};

/// A trial: a fault at a step, with `nodes` nats-servers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Trial {
    pub(crate) nodes: usize,
    pub(crate) step: &'static Step,
    pub(crate) target: Target,
    pub(crate) fault: Fault,
}

/// The result of a trial.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) nodes: usize,
    pub(crate) service: String,
    pub(crate) step: String,
    pub(crate) target: String,
    pub(crate) fault: String,
    /// The only stream that came back older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stream: Option<String>,
    /// The violated rule; `None` if the trial passed.
    pub(crate) wrong: Option<String>,
    /// Milliseconds from the fault to the next commit of the session.
    pub(crate) resumed_ms: u64,
    /// Other sessions of which the faulty replica held no item.
    pub(crate) others: usize,
    /// Number of these sessions that waited nearly as long as an ack wait.
    pub(crate) others_waited: usize,
    /// Longest time between two of their commits, in milliseconds.
    pub(crate) others_gap_ms: u64,
    /// Replies that were requested again after they were stored. Only a gateway that checked before may do this.
    pub(crate) paid_again: usize,
}

/// Limits of a run, and the trials that it selects.
#[derive(Debug, Clone)]
pub(crate) struct RunLimits {
    /// Number of rows in the file at the end.
    pub(crate) faults: usize,
    /// Deadline of the run.
    pub(crate) until: Option<Instant>,
    /// Only trials whose name contains this, such as `kill`, `nats-server: cut`, `gateway`.
    pub(crate) only: String,
}

/// The file of results, and the choice of the next trial.
pub(crate) struct ResultsFile {
    path: PathBuf,
    plan: RunLimits,
    progress: Mutex<Progress>,
}

struct Progress {
    rows: Vec<Row>,
    begun: BTreeMap<(usize, usize, usize), usize>,
    taken: usize,
    rng: Rng,
}

impl ResultsFile {
    /// Opens the file; its rows count as done.
    pub(crate) fn open(path: &Path, plan: RunLimits, seed: u64) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let rows: Vec<Row> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        let mut begun: BTreeMap<(usize, usize, usize), usize> = BTreeMap::new();
        for row in &rows {
            let step = STEPS.iter().position(|step| step.service == row.service && step.name == row.step);
            let fault = FAULTS.iter().position(|(t, f)| t.to_string() == row.target && f.to_string() == row.fault);
            if let (Some(step), Some(fault)) = (step, fault) {
                *begun.entry((row.nodes, step, fault)).or_default() += 1;
            }
        }
        let taken = rows.len();
        let progress = Progress { rows, begun, taken, rng: Rng::new(seed) };
        Ok(Self { path: path.to_owned(), plan, progress: Mutex::new(progress) })
    }

    /// The next trial for `nodes` servers: a random one of those that ran least often. `None` when the run is complete.
    pub(crate) fn next(&self, nodes: usize) -> Option<Trial> {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        let progress = &mut *progress;
        if progress.taken >= self.plan.faults || self.plan.until.is_some_and(|until| Instant::now() > until) {
            return None;
        }
        let cells = (0..STEPS.len()).flat_map(|step| (0..FAULTS.len()).map(move |fault| (nodes, step, fault)));
        let cells = cells.filter(|(_, step, fault)| {
            let (step, (target, fault)) = (&STEPS[*step], FAULTS[*fault]);
            format!("{}: {}, {target}: {fault}", step.service, step.name).contains(&self.plan.only)
        });
        let cells: Vec<_> = cells.map(|trial| (progress.begun.get(&trial).copied().unwrap_or(0), trial)).collect();
        let least = cells.iter().map(|(count, _)| *count).min()?;
        let rarest: Vec<_> = cells.into_iter().filter(|(count, _)| *count == least).map(|(_, trial)| trial).collect();
        let trial = *progress.rng.pick(&rarest);
        *progress.begun.entry(trial).or_default() += 1;
        progress.taken += 1;
        let (_, step, fault) = trial;
        let (target, fault) = FAULTS[fault];
        Some(Trial { nodes, step: &STEPS[step], target, fault })
    }

    /// Appends a row; returns the number of rows, and the number at the end.
    pub(crate) fn write(&self, row: Row) -> anyhow::Result<(usize, usize)> {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dir) = self.path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let mut file = std::fs::File::options().create(true).append(true).open(&self.path)?;
        writeln!(file, "{}", serde_json::to_string(&row)?)?;
        progress.rows.push(row);
        Ok((progress.rows.len(), self.plan.faults))
    }

    /// All rows so far.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).rows.clone()
    }
}

/// The value that `percent` percent of the values do not exceed.
fn percentile(values: &[u64], percent: usize) -> u64 {
    let mut values = values.to_vec();
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    values.get((values.len() * percent).div_ceil(100).saturating_sub(1).min(last)).copied().unwrap_or_default()
}

fn seconds(ms: u64) -> String {
    format!("{:.1}", Duration::from_millis(ms).as_secs_f64())
}

/// The report in Markdown: a table by fault, and a table of steps by faults.
pub(crate) fn report(rows: &[Row]) -> anyhow::Result<String> {
    let mut page = String::new();
    let wrong = rows.iter().filter(|row| row.wrong.is_some()).count();
    writeln!(page, "# Crash matrix\n\n{} faults, {wrong} of them violated a rule.", rows.len())?;
    writeln!(page, "Times are seconds from the fault to the next commit of its session.")?;
    for nodes in [1, 3] {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.nodes == nodes).collect();
        if rows.is_empty() {
            continue;
        }
        let word = if nodes == 1 { "One nats-server" } else { "Three nats-servers, three copies" };
        writeln!(page, "\n## {word}\n")?;
        by_fault(&mut page, &rows)?;
        matrix(&mut page, &rows)?;
    }
    let mut wrong = rows.iter().filter(|row| row.wrong.is_some()).peekable();
    if wrong.peek().is_some() {
        writeln!(page, "\n## Violations\n")?;
    }
    for row in wrong {
        let why = row.wrong.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
        writeln!(page, "- {} nodes, {} {} of {}, {}: {why}", row.nodes, row.fault, row.target, row.service, row.step)?;
    }
    Ok(page)
}

fn by_fault(page: &mut String, rows: &[&Row]) -> anyhow::Result<()> {
    writeln!(
        page,
        "| fault | trials | wrong | p50 | p99 | longest | others that waited | their longest pause | paid again |"
    )?;
    writeln!(page, "|---|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for (target, fault) in FAULTS {
        let of = |row: &&&Row| row.target == target.to_string() && row.fault == fault.to_string();
        let rows: Vec<&&Row> = rows.iter().filter(of).collect();
        if rows.is_empty() {
            continue;
        }
        let times: Vec<u64> = rows.iter().map(|row| row.resumed_ms).collect();
        let wrong = rows.iter().filter(|row| row.wrong.is_some()).count();
        let sum = |of: fn(&Row) -> usize| rows.iter().map(|row| of(row)).sum::<usize>();
        let others = match target {
            Target::Service => {
                let longest = seconds(rows.iter().map(|row| row.others_gap_ms).max().unwrap_or_default());
                format!("{} of {} | {longest}", sum(|row| row.others_waited), sum(|row| row.others))
            }
            Target::Holders | Target::Server => "- | -".to_owned(),
        };
        let again = sum(|row| row.paid_again);
        writeln!(
            page,
            "| {target}: {fault} | {} | {wrong} | {} | {} | {} | {others} | {again} |",
            rows.len(),
            seconds(percentile(&times, 50)),
            seconds(percentile(&times, 99)),
            seconds(percentile(&times, 100)),
        )?;
    }
    Ok(())
}

fn matrix(page: &mut String, rows: &[&Row]) -> anyhow::Result<()> {
    let columns: Vec<String> = FAULTS.iter().map(|(target, fault)| format!("{target}: {fault}")).collect();
    writeln!(page, "\n| service | step | {} |", columns.join(" | "))?;
    writeln!(page, "|---|---|{}", "--:|".repeat(columns.len()))?;
    for step in STEPS {
        let mut cells = Vec::new();
        for (target, fault) in FAULTS {
            let of = |row: &&&Row| {
                row.service == step.service
                    && row.step == step.name
                    && row.target == target.to_string()
                    && row.fault == fault.to_string()
            };
            let rows: Vec<&&Row> = rows.iter().filter(of).collect();
            let wrong = rows.iter().filter(|row| row.wrong.is_some()).count();
            let longest = rows.iter().map(|row| row.resumed_ms).max();
            cells.push(match longest {
                None => "-".to_owned(),
                Some(_) if wrong > 0 => format!("**{wrong} of {} wrong**", rows.len()),
                Some(longest) => seconds(longest),
            });
        }
        writeln!(page, "| {} | {} | {} |", step.service, step.name, cells.join(" | "))?;
    }
    Ok(())
}
