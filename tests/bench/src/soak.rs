//! Whether memory stays flat: services under load for a long time, each a process of its own.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use crate::fixture::{Fixture, FleetShape};
use crate::load::{Load, percentile};
use crate::report;

/// Interval between two reads of the memory.
const LOOK: Duration = Duration::from_secs(10);
/// First part of the run that is left out, in percent: caches and pools fill.
const FILLING_PERCENT: usize = 30;
/// Seconds after which sessions leave the log, so that many do.
const ARCHIVE_AFTER: u64 = 60;

/// Length and load of the run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SoakOptions {
    /// Length of the run in minutes
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Sessions at the same time
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
}

/// One process over the time.
#[derive(Debug, Serialize)]
struct Row {
    process: String,
    /// MiB at the end of each tenth.
    rss_mb: Vec<f64>,
    /// MiB that it grows by in an hour, after the first third: the line of least squares.
    mb_per_hour: f64,
    /// Growth in an hour, in percent of its mean memory.
    percent_per_hour: f64,
}

/// Result of the run.
#[derive(Debug, Serialize)]
struct Soak {
    minutes: u64,
    concurrency: usize,
    steps: usize,
    /// Milliseconds, median of the first and of the last tenth.
    step_ms_p50: [f64; 2],
    processes: Vec<Row>,
}

/// Runs, prints and writes `soak.json`.
pub(crate) async fn run(plan: &SoakOptions) -> anyhow::Result<()> {
    ailoop::install_crypto();
    let shape = FleetShape { apart: Some(1), archive_after: Some(ARCHIVE_AFTER), ..FleetShape::PLAIN };
    let fixture = Fixture::start(shape).await?;
    report::note(&format!("processes: {}", fixture.ids()));
    let (whole, began) = (Duration::from_secs(plan.minutes * 60), Instant::now());
    let mut load = Load::start(&fixture, plan.concurrency).await?;
    // Seconds, and each process's MiB.
    let mut samples: Vec<(f64, Vec<(String, f64)>)> = Vec::new();
    let (tenth, mut p50) = (whole / 10, [0.0; 2]);
    while began.elapsed() < whole {
        let next = Instant::now() + LOOK;
        load.during(async {
            sleep_until(next.min(began + whole)).await;
            Ok(())
        })
        .await?;
        let used = fixture.used()?;
        let nats = ("nats-server".to_owned(), used.nats.rss_mb);
        let all = used.services.iter().map(|(name, usage)| (name.clone(), usage.rss_mb)).chain([nats]).collect();
        let tenths = |at: Duration| at.as_secs() / tenth.as_secs().max(1);
        let (at, before) = (began.elapsed(), samples.last().map_or(0.0, |(at, _)| *at));
        samples.push((at.as_secs_f64(), all));
        if tenths(at) > tenths(Duration::from_secs_f64(before)) {
            let (steps, recent) = load.steps(tenth);
            p50[usize::from(tenths(at) > 1)] = percentile(&recent, 50);
            report::note(&format!("{} min, {steps} steps", at.as_secs() / 60));
        }
    }
    let (steps, _) = load.steps(Duration::ZERO);
    let soak = Soak {
        minutes: plan.minutes,
        concurrency: plan.concurrency,
        steps,
        step_ms_p50: p50.map(report::rounded),
        processes: rows(&samples),
    };
    report::write("soak.json", &soak)?;
    report::print(&text(&soak));
    Ok(())
}

fn rows(samples: &[(f64, Vec<(String, f64)>)]) -> Vec<Row> {
    let count = samples.len();
    let names = samples.first().map(|(_, all)| all.iter().map(|(name, _)| name.clone()).collect()).unwrap_or_default();
    let row = |(nth, process): (usize, String)| {
        let points: Vec<(f64, f64)> = samples.iter().map(|(at, all)| (*at, all[nth].1)).collect();
        let at = |tenth: usize| points[(count * tenth).div_ceil(10).clamp(1, count) - 1].1;
        let (slope, mean) = line(&points[count * FILLING_PERCENT / 100..]);
        let mb_per_hour = slope * 3600.0;
        Row {
            process,
            rss_mb: (1..=10).map(|tenth| report::rounded(at(tenth))).collect(),
            mb_per_hour: report::rounded(mb_per_hour),
            percent_per_hour: report::rounded(mb_per_hour * 100.0 / mean.max(f64::MIN_POSITIVE)),
        }
    };
    let names: Vec<String> = names;
    names.into_iter().enumerate().map(row).collect()
}

/// The slope of the line of least squares, and the mean.
#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let over: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let under: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    (if under > 0.0 { over / under } else { 0.0 }, y)
}

fn text(soak: &Soak) -> String {
    let Soak { minutes, concurrency, steps, step_ms_p50: [first, last], .. } = soak;
    let mut text = format!(
        "\n{minutes} minutes, {concurrency} sessions at the same time, {steps} steps; p50 of a step {first:.1} ms in the first tenth, {last:.1} ms in the last\n\
         MiB resident at the end of each tenth; growth after the first third\n\n"
    );
    for row in &soak.processes {
        let tenths: Vec<String> = row.rss_mb.iter().map(|mb| format!("{mb:>6.1}")).collect();
        let _ = writeln!(
            text,
            "{:<14} {}  {:>+7.1} MiB/h {:>+6.1} %/h",
            row.process,
            tenths.join(" "),
            row.mb_per_hour,
            row.percent_per_hour
        );
    }
    text
}
