//! Runs the simulation: many seeds over all cores, then every planted bug. Prints seeds, so that a run can be repeated
//! with `--seed`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a command")]

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use simulation::planted_bug::PlantedBug;
use simulation::seeds::run_seeds;
use simulation::shell::{self, PlantedMistake};
use simulation::world::{RareEvents, RunStats, simulate};

/// Simulates sessions in a seeded world with virtual time.
#[derive(Debug, Parser)]
struct Args {
    /// Inputs to deliver, over all runs of ring 2
    #[arg(long, default_value_t = 3_000_000)]
    inputs: u64,
    /// The first seed of rings 2 and 3
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run only this seed of ring 2
    #[arg(long)]
    seed: Option<u64>,
    /// Runs of a small fleet (ring 3)
    #[arg(long, default_value_t = 2_000)]
    fleets: u64,
    /// Run only this seed of ring 3
    #[arg(long)]
    fleet_seed: Option<u64>,
    /// Seeds within which a planted bug must be found
    #[arg(long, default_value_t = 20_000)]
    bug_seeds: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(seed) = args.seed {
        return match simulate(seed, PlantedBug::None) {
            Ok(stats) => {
                println!("seed {seed}: {stats:?}");
                ExitCode::SUCCESS
            }
            Err(why) => {
                println!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    if let Some(seed) = args.fleet_seed {
        let result = shell::simulate(seed, PlantedMistake::None);
        println!("{result:?}");
        return if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let ok = runs(&args) && bugs(args.bug_seeds) && fleets(&args) && mistakes(args.bug_seeds);
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Says on standard error how far a ring is, from time to time.
#[derive(Debug)]
struct Progress {
    ring: &'static str,
    next: Mutex<Instant>,
}

impl Progress {
    const EVERY: Duration = Duration::from_secs(10);

    fn new(ring: &'static str) -> Self {
        Self { ring, next: Mutex::new(Instant::now() + Self::EVERY) }
    }

    fn tell(&self, done: &AtomicU64, all: u64, unit: &str) {
        // Another thread is telling it.
        let Ok(mut next) = self.next.try_lock() else { return };
        if *next <= Instant::now() {
            *next = Instant::now() + Self::EVERY;
            eprintln!("{}: {} of {all} {unit}", self.ring, done.load(Ordering::Relaxed));
        }
    }
}

fn runs(args: &Args) -> bool {
    let delivered = AtomicU64::new(0);
    let progress = Progress::new("ring 2");
    let began = Instant::now();
    let all = run_seeds(
        args.from..u64::MAX,
        || {
            progress.tell(&delivered, args.inputs, "inputs");
            delivered.load(Ordering::Relaxed) < args.inputs
        },
        |seed| simulate(seed, PlantedBug::None).inspect(|run| _ = delivered.fetch_add(run.inputs, Ordering::Relaxed)),
    );
    if let Some((_, why)) = &all.failed {
        println!("{why}");
    }
    let stats = all.passed;
    let median = |value: fn(&RunStats) -> u64| {
        let mut list: Vec<u64> = stats.iter().map(value).collect();
        list.sort_unstable();
        list.get(list.len() / 2).copied().unwrap_or(0)
    };
    let commits: u64 = stats.iter().map(|run| run.commits).sum();
    let duration: Duration = stats.iter().map(|run| run.duration).sum();
    println!(
        "ring 2: {} runs, {} inputs (median {} per run), {commits} commits, median {} faults per run, {} virtual days, {:.1} s",
        stats.len(),
        delivered.load(Ordering::Relaxed),
        median(|run| run.inputs),
        median(|run| run.faults),
        duration.as_secs() / 86_400,
        began.elapsed().as_secs_f64()
    );
    let rare = stats.iter().fold(RareEvents::default(), |sum, run| sum.plus(run.rare));
    println!("ring 2: {rare:?}");
    all.failed.is_none() && !stats.is_empty() && rare.least() > 0
}

/// Every planted bug must be found: an oracle that cannot fail shows nothing.
fn bugs(seeds: u64) -> bool {
    let mut all = true;
    for bug in PlantedBug::ALL {
        let Some((seed, why)) = run_seeds(0..seeds, || true, |seed| simulate(seed, *bug)).failed else {
            println!("planted {bug:?}: NOT FOUND in {seeds} seeds");
            all = false;
            continue;
        };
        let first = why.lines().next().unwrap_or_default();
        let violation = first.split_once(" inputs: ").map_or(first, |(_, violation)| violation);
        println!("planted {bug:?}: found at seed {seed}: {violation}");
    }
    all
}

fn fleets(args: &Args) -> bool {
    let began = Instant::now();
    let seeds = args.from..args.from + args.fleets;
    let (done, progress) = (AtomicU64::new(0), Progress::new("ring 3"));
    let go_on = || {
        progress.tell(&done, args.fleets, "runs");
        true
    };
    let runs = run_seeds(seeds, go_on, |seed| {
        shell::simulate(seed, PlantedMistake::None).inspect(|_| _ = done.fetch_add(1, Ordering::Relaxed))
    });
    if let Some((_, why)) = &runs.failed {
        println!("{why}");
    }
    let total = |value: fn(&shell::FleetStats) -> u64| runs.passed.iter().map(value).sum::<u64>();
    println!(
        "ring 3: {} runs of a fleet, {} commits, {} tool calls, {} children, {} compactions, {} faults, {} replicas died, {} times streams went back, {:.1} s",
        runs.passed.len(),
        total(|f| f.commits),
        total(|f| f.tools),
        total(|f| f.children),
        total(|f| f.compactions),
        total(|f| f.faults),
        total(|f| f.deaths),
        total(|f| f.replacements),
        began.elapsed().as_secs_f64()
    );
    runs.failed.is_none()
}

fn mistakes(seeds: u64) -> bool {
    let mut all = true;
    for mistake in PlantedMistake::ALL {
        if let Some((_, why)) = run_seeds(0..seeds, || true, |seed| shell::simulate(seed, *mistake)).failed {
            println!("planted {why}");
        } else {
            println!("planted {mistake:?}: NOT FOUND in {seeds} seeds");
            all = false;
        }
    }
    all
}
