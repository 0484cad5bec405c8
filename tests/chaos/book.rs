//! What was tried and what came of it: lines in a file, so that a run goes on where another one ended; and the report.

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

/// What is tried: a fault at a step, on so many nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) nodes: usize,
    pub(crate) step: &'static Step,
    pub(crate) target: Target,
    pub(crate) fault: Fault,
}

/// What came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) nodes: usize,
    pub(crate) service: String,
    pub(crate) step: String,
    pub(crate) target: String,
    pub(crate) fault: String,
    /// What is wrong; nothing is.
    pub(crate) wrong: Option<String>,
    /// From the fault to the session's next commit, milliseconds.
    pub(crate) resumed_ms: u64,
    /// Sessions of which nothing was held by who was struck; those that waited as long as for an ack wait all the same; and
    /// the longest time between two of their commits, milliseconds.
    pub(crate) others: usize,
    pub(crate) others_waited: usize,
    pub(crate) others_gap_ms: u64,
    /// Replies that were asked for again after they had been stored: only a gateway may do this that had asked before.
    pub(crate) paid_again: usize,
}

/// How much is to be tried.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Rows that the file is to have.
    pub(crate) faults: usize,
    /// When to end in any case.
    pub(crate) until: Option<Instant>,
    /// Only what has this in its name, such as `kill`, `nats-server: cut`, `gateway`.
    pub(crate) only: String,
}

/// The file.
pub(crate) struct Book {
    path: PathBuf,
    plan: Plan,
    pages: Mutex<Pages>,
}

struct Pages {
    rows: Vec<Row>,
    begun: BTreeMap<(usize, usize, usize), usize>,
    taken: usize,
    rng: Rng,
}

impl Book {
    /// Opens the file; what it holds counts.
    pub(crate) fn open(path: &Path, plan: Plan, seed: u64) -> anyhow::Result<Self> {
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
        let pages = Pages { rows, begun, taken, rng: Rng::new(seed) };
        Ok(Self { path: path.to_owned(), plan, pages: Mutex::new(pages) })
    }

    /// What to try next on so many nodes: of what was tried least, any. None when enough was tried.
    pub(crate) fn next(&self, nodes: usize) -> Option<Cell> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let pages = &mut *pages;
        if pages.taken >= self.plan.faults || self.plan.until.is_some_and(|until| Instant::now() > until) {
            return None;
        }
        let cells = (0..STEPS.len()).flat_map(|step| (0..FAULTS.len()).map(move |fault| (nodes, step, fault)));
        let cells = cells.filter(|(_, step, fault)| {
            let (step, (target, fault)) = (&STEPS[*step], FAULTS[*fault]);
            fault.fits(nodes) && format!("{}: {}, {target}: {fault}", step.service, step.name).contains(&self.plan.only)
        });
        let cells: Vec<_> = cells.map(|cell| (pages.begun.get(&cell).copied().unwrap_or(0), cell)).collect();
        let least = cells.iter().map(|(count, _)| *count).min()?;
        let rarest: Vec<_> = cells.into_iter().filter(|(count, _)| *count == least).map(|(_, cell)| cell).collect();
        let cell = *pages.rng.pick(&rarest);
        *pages.begun.entry(cell).or_default() += 1;
        pages.taken += 1;
        let (_, step, fault) = cell;
        let (target, fault) = FAULTS[fault];
        Some(Cell { nodes, step: &STEPS[step], target, fault })
    }

    /// Writes down what came of it; returns how many rows there are, and how many there are to be.
    pub(crate) fn write(&self, row: Row) -> anyhow::Result<(usize, usize)> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dir) = self.path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let mut file = std::fs::File::options().create(true).append(true).open(&self.path)?;
        writeln!(file, "{}", serde_json::to_string(&row)?)?;
        pages.rows.push(row);
        Ok((pages.rows.len(), self.plan.faults))
    }

    /// Everything so far.
    pub(crate) fn rows(&self) -> Vec<Row> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).rows.clone()
    }
}

/// The value that so many percent do not exceed.
fn percentile(values: &[u64], percent: usize) -> u64 {
    let mut values = values.to_vec();
    values.sort_unstable();
    let last = values.len().saturating_sub(1);
    values.get((values.len() * percent).div_ceil(100).saturating_sub(1).min(last)).copied().unwrap_or_default()
}

fn seconds(ms: u64) -> String {
    format!("{:.1}", Duration::from_millis(ms).as_secs_f64())
}

/// A page of Markdown: by fault, then step by fault.
pub(crate) fn report(rows: &[Row]) -> anyhow::Result<String> {
    let mut page = String::new();
    let wrong = rows.iter().filter(|row| row.wrong.is_some()).count();
    writeln!(page, "# Crash matrix\n\n{} faults, {wrong} with something wrong afterwards.", rows.len())?;
    writeln!(page, "Times are seconds from the fault to the next commit of the session that it struck.")?;
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
        writeln!(page, "\n## What went wrong\n")?;
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
        "| what | how often | wrong | p50 | p99 | longest | others that waited | their longest pause | paid again |"
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
            Target::Server => "- | -".to_owned(),
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
