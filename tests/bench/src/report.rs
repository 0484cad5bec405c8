//! The figures: a table for people, `bench.json` for programs.

use std::fmt::Write as _;

use anyhow::Context;
use serde::Serialize;

use crate::anatomy::{Anatomy, Kind};
use crate::load::{Measured, percentile};
use crate::process::Usage;
use crate::pure;
use crate::run::Level;
use crate::stage::{SERVICES, Used};

/// A figure of `bench.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Figure {
    name: String,
    value: f64,
    unit: &'static str,
    /// The same of as many raw messages, where that can be measured.
    floor: Option<f64>,
}

/// Tells people what goes on.
#[allow(clippy::print_stderr, reason = "for people; the table goes to stdout")]
pub(crate) fn note(what: &str) {
    eprintln!("bench: {what}");
}

/// Tells people what went wrong.
pub(crate) fn fail(error: &anyhow::Error) {
    note(&format!("error: {error:#}"));
}

/// Prints the tables and writes `bench.json`.
#[allow(clippy::print_stdout, reason = "this is what the bench is for")]
pub(crate) fn report(anatomy: &Anatomy, levels: &[Level]) -> anyhow::Result<()> {
    let mut figures: Vec<Figure> = levels.iter().flat_map(figures).collect();
    figures.extend(pure_figures()?);
    let mut text = table(&figures);
    text += &parts(levels);
    text += &positions(levels);
    text += &messages(anatomy);
    println!("{text}");
    // Next to the profile's directory, in which this binary is: so that it follows CARGO_TARGET_DIR.
    let binary = std::env::current_exe()?;
    let target = binary.ancestors().nth(2).context("no target directory")?.join("bench.json");
    std::fs::write(&target, serde_json::to_vec_pretty(&figures)?)?;
    note(&format!("written to {}", target.display()));
    Ok(())
}

/// Measures and prints the pure core alone.
#[allow(clippy::print_stdout, reason = "this is what the bench is for")]
pub(crate) fn core() -> anyhow::Result<()> {
    println!("{}", table(&pure_figures()?));
    Ok(())
}

fn pure_figures() -> anyhow::Result<Vec<Figure>> {
    note("the pure core");
    let (times, ratios) = pure::measure()?;
    let figure = |unit| {
        move |(name, value): pure::Timed| Figure { name: name.to_owned(), value: rounded(value), unit, floor: None }
    };
    Ok(times.into_iter().map(figure("us")).chain(ratios.into_iter().map(figure("x"))).collect())
}

fn figures(level: &Level) -> Vec<Figure> {
    let Level { measured, floor } = level;
    let name = |what: &str| format!("loop.c{}.{what}", measured.concurrency);
    let figure = |what: &str, value: f64, unit, floor: Option<f64>| Figure {
        name: name(what),
        value: rounded(value),
        unit,
        floor: floor.map(rounded),
    };
    let used = &measured.used[1];
    let rss = used.services.iter().map(|usage| usage.rss_mb).sum();
    vec![
        figure("ms_per_step_p50", percentile(&measured.step_ms, 50), "ms", Some(floor.ms_per_step_p50)),
        figure("ms_per_step_p99", percentile(&measured.step_ms, 99), "ms", Some(floor.ms_per_step_p99)),
        figure("steps_per_s", steps(measured) / measured.window.as_secs_f64(), "1/s", Some(floor.steps_per_s)),
        figure("cpu_s_per_1000_steps", cpu(measured, counted), "s", Some(floor.cpu_s_per_1000_steps)),
        figure(
            "nats_cpu_s_per_1000_steps",
            cpu(measured, |used| used.nats.cpu_s),
            "s",
            Some(floor.nats_cpu_s_per_1000_steps),
        ),
        figure("rss_mb", rss, "MiB", None),
        figure("nats_rss_mb", used.nats.rss_mb, "MiB", None),
    ]
}

/// What counts as the cost of the loop: services and nats-server.
fn counted(used: &Used) -> f64 {
    used.services.iter().map(|usage| usage.cpu_s).sum::<f64>() + used.nats.cpu_s
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

/// Three decimals tell everything that a noisy machine can.
fn rounded(value: f64) -> f64 {
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

fn table(figures: &[Figure]) -> String {
    let mut text = format!("\n{:<36} {:>10} {:>6} {:>10} {:>7}\n", "figure", "value", "unit", "floor", "ratio");
    for Figure { name, value, unit, floor } in figures {
        let (floor, ratio) = floor.map_or(("-".to_owned(), "-".to_owned()), |floor| {
            (short(floor), format!("{:.1}x", (value / floor).max(floor / value)))
        });
        let _ = writeln!(text, "{name:<36} {:>10} {unit:>6} {floor:>10} {ratio:>7}", short(*value));
    }
    text
}

/// One of the parts that run.
type Part = fn(&Used) -> Usage;

/// Where CPU and memory go, by process.
fn parts(levels: &[Level]) -> String {
    let mut text = format!("\n{:<16}", "process");
    for level in levels {
        let concurrency = level.measured.concurrency;
        let _ = write!(text, " {:>13} {:>8} {:>8}", format!("c{concurrency} cpu/1000"), "rss MiB", "peak");
    }
    let services = SERVICES.iter().enumerate();
    let mut row = |name: &str, of: &dyn Fn(&Used) -> Usage| {
        let _ = write!(text, "\n{name:<16}");
        for Level { measured, .. } in levels {
            let now = of(&measured.used[1]);
            let cpu = cpu(measured, |used| of(used).cpu_s);
            let _ = write!(text, " {cpu:>13.3} {:>8.1} {:>8.1}", now.rss_mb, now.rss_mb_max);
        }
    };
    for (n, name) in services {
        row(name, &|used| used.services[n]);
    }
    let others: [(&str, Part); 4] = [
        ("nats-server", |used| used.nats),
        ("(model server)", |used| used.model),
        ("(tool)", |used| used.tool),
        ("(load)", |used| used.load),
    ];
    for (name, of) in others {
        row(name, &of);
    }
    text + "\n"
}

/// How a session goes, and what the nats-server counted.
fn positions(levels: &[Level]) -> String {
    let mut text = String::new();
    for Level { measured, .. } in levels {
        let steps: Vec<String> = measured.step_ms_at.iter().map(|ms| short(percentile(ms, 50))).collect();
        let [before, after] = measured.traffic;
        let _ = write!(
            text,
            "\nc{}: start p50 {} ms; steps 1 to {} p50 {} ms; nats-server {:.1} messages in and {:.1} out per step",
            measured.concurrency,
            short(percentile(&measured.start_ms, 50)),
            steps.len(),
            steps.join(", "),
            per_step(measured, [before.in_msgs, after.in_msgs]),
            per_step(measured, [before.out_msgs, after.out_msgs]),
        );
    }
    text + "\n"
}

fn messages(anatomy: &Anatomy) -> String {
    let mut text = format!("\n{:<24} {:<18} {:>9} {:>7}  kind\n", "message", "from", "per step", "bytes");
    for class in &anatomy.0 {
        let kind = word(class.kind);
        let _ = writeln!(
            text,
            "{:<24} {:<18} {:>9.2} {:>7.0}  {kind}",
            class.name, class.from, class.per_step, class.bytes
        );
    }
    for kind in [Kind::Append, Kind::Read, Kind::Ask, Kind::Tell] {
        let _ = writeln!(
            text,
            "{:<43} {:>9.2} {:>7.0}",
            format!("all: {}", word(kind)),
            anatomy.per_step(kind),
            anatomy.bytes(kind)
        );
    }
    text
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Append => "stored",
        Kind::Read => "server answers",
        Kind::Ask => "client answers",
        Kind::Tell => "core",
    }
}
