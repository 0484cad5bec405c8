//! The figures: a table, and `bench.json` for programs.

use std::fmt::Write as _;

use anyhow::Context;
use serde::Serialize;

use crate::anatomy::{Anatomy, MessageKind};
use crate::figure::Timed;
use crate::fixture::Used;
use crate::floor::FloorMessages;
use crate::level::Level;
use crate::load::{Measured, percentile};
use crate::process::Usage;
use crate::pure;

/// A figure of `bench.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    /// The same of as many raw messages, where that can be measured.
    floor: Option<f64>,
}

impl Figure {
    /// One without a floor.
    pub(crate) fn new(name: String, value: f64, unit: &'static str) -> Self {
        Self { name, value: rounded(value), unit, floor: None }
    }

    /// With what raw messages cost.
    pub(crate) fn over(self, floor: f64) -> Self {
        Self { floor: Some(rounded(floor)), ..self }
    }
}

/// Prints the progress to stderr.
#[allow(clippy::print_stderr, reason = "for people; the table goes to stdout")]
pub(crate) fn note(what: &str) {
    eprintln!("bench: {what}");
}

/// Prints an error to stderr.
pub(crate) fn fail(error: &anyhow::Error) {
    note(&format!("error: {error:#}"));
}

/// Prints the tables and writes `bench.json`.
pub(crate) fn report(
    anatomy: Option<&Anatomy>,
    floor: &FloorMessages,
    levels: &[Level],
    parts_alone: Vec<Figure>,
) -> anyhow::Result<()> {
    let mut figures: Vec<Figure> = levels.iter().flat_map(figures).collect();
    figures.extend(parts_alone);
    figures.extend(pure_figures()?);
    let mut text = table(&figures);
    text += &parts(levels);
    text += &positions(levels);
    if let Some(anatomy) = anatomy {
        text += &messages(anatomy, floor);
    }
    print(&text);
    write("bench.json", &figures)
}

/// Prints what was measured.
#[allow(clippy::print_stdout, reason = "this is what the bench is for")]
pub(crate) fn print(text: &str) {
    println!("{text}");
}

/// Writes what was measured into the target directory.
pub(crate) fn write(name: &str, figures: &impl Serialize) -> anyhow::Result<()> {
    // Next to the profile's directory, in which this binary is: so that it follows CARGO_TARGET_DIR.
    let binary = std::env::current_exe()?;
    let target = binary.ancestors().nth(2).context("no target directory")?.join(name);
    std::fs::write(&target, serde_json::to_vec_pretty(figures)?)?;
    note(&format!("written to {}", target.display()));
    Ok(())
}

/// Measures and prints the pure core alone.
pub(crate) fn core() -> anyhow::Result<()> {
    print(&table(&pure_figures()?));
    Ok(())
}

fn pure_figures() -> anyhow::Result<Vec<Figure>> {
    note("the pure core");
    let (times, ratios) = pure::measure()?;
    let figure = |unit| move |(name, value): Timed| Figure::new(name.to_owned(), value, unit);
    Ok(times.into_iter().map(figure("us")).chain(ratios.into_iter().map(figure("x"))).collect())
}

fn figures(level: &Level) -> Vec<Figure> {
    let Level { row, measured, floor } = level;
    let name = |what: &str| format!("{}.c{}.{what}", row.name(), measured.concurrency);
    let figure = |what: &str, value: f64, unit, floor: Option<f64>| Figure {
        name: name(what),
        value: rounded(value),
        unit,
        floor: floor.map(rounded),
    };
    let used = &measured.used[1];
    let all = used.services.iter().fold(Usage::default(), |sum, (_, usage)| sum.plus(*usage));
    vec![
        figure("ms_per_step_p50", percentile(&measured.step_ms, 50), "ms", Some(floor.ms_per_step_p50)),
        figure("ms_per_step_p99", percentile(&measured.step_ms, 99), "ms", Some(floor.ms_per_step_p99)),
        figure("steps_per_s", steps_per_s(measured), "1/s", Some(floor.steps_per_s)),
        figure("cpu_s_per_1000_steps", cpu_s_per_1000_steps(measured), "s", Some(floor.cpu_s_per_1000_steps)),
        figure(
            "nats_cpu_s_per_1000_steps",
            cpu(measured, |used| used.nats.cpu_s),
            "s",
            Some(floor.nats_cpu_s_per_1000_steps),
        ),
        figure("services_cpu_of_yardstick", services_of_yardstick(measured), "x", None),
        figure("rss_mb", all.rss_mb, "MiB", None),
        figure("rss_mb_peak", all.rss_mb_max, "MiB", None),
        figure("nats_rss_mb", used.nats.rss_mb, "MiB", None),
    ]
}

/// Returns the CPU seconds that count as the cost of the loop: services and nats-server.
pub(crate) fn counted(used: &Used) -> f64 {
    used.services.iter().map(|(_, usage)| usage.cpu_s).sum::<f64>() + used.nats.cpu_s
}

/// Finished steps in a second.
pub(crate) fn steps_per_s(measured: &Measured) -> f64 {
    steps(measured) / measured.window.as_secs_f64()
}

/// CPU seconds of the loop for 1 000 steps.
pub(crate) fn cpu_s_per_1000_steps(measured: &Measured) -> f64 {
    cpu(measured, counted)
}

/// CPU seconds for 1 000 steps of what is not measured: model server, tool and load generator. Their work is always the
/// same, so they show how fast the machine was in these seconds.
pub(crate) fn yardstick_cpu_s_per_1000_steps(measured: &Measured) -> f64 {
    cpu(measured, |used| used.model.cpu_s + used.tool.cpu_s + used.load.cpu_s)
}

/// CPU of the services, as a multiple of the yardstick.
fn services_of_yardstick(measured: &Measured) -> f64 {
    cpu(measured, |used| counted(used) - used.nats.cpu_s) / yardstick_cpu_s_per_1000_steps(measured)
}

/// CPU seconds of 1 000 steps.
fn cpu(measured: &Measured, of: impl Fn(&Used) -> f64) -> f64 {
    let [before, after] = &measured.used;
    (of(after) - of(before)) * 1e3 / steps(measured)
}

#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
fn steps(measured: &Measured) -> f64 {
    measured.step_ms.len() as f64
}

#[allow(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
fn per_step(measured: &Measured, counts: [u64; 2]) -> f64 {
    (counts[1] - counts[0]) as f64 / steps(measured)
}

/// Rounds to three decimals; more would be noise.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Three figures that count, for people.
fn short(value: f64) -> String {
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$}")
}

pub(crate) fn table(figures: &[Figure]) -> String {
    let mut text = format!("\n{:<36} {:>10} {:>6} {:>10} {:>7}\n", "figure", "value", "unit", "floor", "ratio");
    for Figure { name, value, unit, floor } in figures {
        let (floor, ratio) = floor.map_or(("-".to_owned(), "-".to_owned()), |floor| {
            // More is better of what is done in a second, and less of everything else.
            let ratio = if *unit == "1/s" { floor / value } else { value / floor };
            (short(floor), format!("{ratio:.1}x"))
        });
        let _ = writeln!(text, "{name:<36} {:>10} {unit:>6} {floor:>10} {ratio:>7}", short(*value));
    }
    text
}

/// Formats CPU and memory by process.
fn parts(levels: &[Level]) -> String {
    let mut text = format!("\n{:<24} {:<16} {:>12} {:>9} {:>9}\n", "level", "process", "cpu s/1000", "rss MiB", "peak");
    for Level { row, measured, .. } in levels {
        let level = format!("{}.c{}", row.name(), measured.concurrency);
        let [before, after] = &measured.used;
        let others = |used: &Used| {
            let Used { nats, model, tool, load, .. } = *used;
            [("nats-server", nats), ("(model server)", model), ("(tool)", tool), ("(load)", load)]
                .map(|(name, usage)| (name.to_owned(), usage))
        };
        let rows = |used: &Used| used.services.iter().cloned().chain(others(used)).collect::<Vec<_>>();
        for ((name, before), (_, after)) in rows(before).into_iter().zip(rows(after)) {
            let cpu = (after.cpu_s - before.cpu_s) * 1e3 / steps(measured);
            let _ =
                writeln!(text, "{level:<24} {name:<16} {cpu:>12.3} {:>9.1} {:>9.1}", after.rss_mb, after.rss_mb_max);
        }
    }
    text
}

/// Formats the durations of the parts of a session, and the counters of the nats-server.
fn positions(levels: &[Level]) -> String {
    let mut text = String::new();
    for Level { row, measured, .. } in levels {
        let steps: Vec<String> = measured.step_ms_at.iter().map(|ms| short(percentile(ms, 50))).collect();
        let [before, after] = measured.traffic;
        let _ = write!(
            text,
            "\n{}.c{}: {} sessions so far; start p50 {} ms; steps 1 to {} p50 {} ms; nats-server {:.1} messages in and {:.1} out per step",
            row.name(),
            measured.concurrency,
            measured.sessions,
            short(percentile(&measured.start_ms, 50)),
            steps.len(),
            steps.join(", "),
            per_step(measured, [before.in_msgs, after.in_msgs]),
            per_step(measured, [before.out_msgs, after.out_msgs]),
        );
    }
    text + "\n"
}

fn messages(anatomy: &Anatomy, floor: &FloorMessages) -> String {
    let mut text = format!("\n{:<24} {:<18} {:>9} {:>7}  kind\n", "message", "from", "per step", "bytes");
    for class in &anatomy.0 {
        let kind = word(class.kind);
        let _ = writeln!(
            text,
            "{:<24} {:<18} {:>9.2} {:>7.0}  {kind}",
            class.name, class.from, class.per_step, class.bytes
        );
    }
    let mut sums = |of: &str, count: &dyn Fn(MessageKind) -> (f64, f64)| {
        for kind in MessageKind::ALL {
            let (what, (per_step, bytes)) = (format!("{of}: {}", word(kind)), count(kind));
            let _ = writeln!(text, "{what:<43} {per_step:>9.2} {bytes:>7.0}");
        }
    };
    sums("all", &|kind| (anatomy.per_step(kind), anatomy.bytes(kind)));
    sums(&format!("floor, as at {}", floor.commit), &|kind| (floor.of(kind).per_step, floor.of(kind).bytes));
    text
}

fn word(kind: MessageKind) -> &'static str {
    match kind {
        MessageKind::Append => "stored",
        MessageKind::Read => "server answers",
        MessageKind::Ask => "client answers",
        MessageKind::Tell => "core",
    }
}
