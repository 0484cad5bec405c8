//! Runs the simulation: many lives over all cores, then every planted bug. Prints seeds, so that a life can be lived
//! again with `--seed`.

#![allow(clippy::print_stdout, reason = "it is a command")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use simulation::plant::Bug;
use simulation::seeds::over_cores;
use simulation::shell::{self, Mistake};
use simulation::world::{Figures, Seen, live};

/// Simulates sessions in a seeded world with virtual time.
#[derive(Debug, Parser)]
struct Args {
    /// Inputs to deliver, over all lives.
    #[arg(long, default_value_t = 3_000_000)]
    inputs: u64,
    /// First seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Live this one life only.
    #[arg(long)]
    seed: Option<u64>,
    /// Lives of a small fleet (ring 3).
    #[arg(long, default_value_t = 2_000)]
    fleets: u64,
    /// Live this one life of a small fleet only.
    #[arg(long)]
    fleet_seed: Option<u64>,
    /// Seeds in which a planted bug must be found.
    #[arg(long, default_value_t = 20_000)]
    bug_seeds: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(seed) = args.seed {
        return match live(seed, Bug::None) {
            Ok(figures) => {
                println!("seed {seed}: {figures:?}");
                ExitCode::SUCCESS
            }
            Err(why) => {
                println!("{why}");
                ExitCode::FAILURE
            }
        };
    }
    if let Some(seed) = args.fleet_seed {
        let result = shell::live(seed, Mistake::None);
        println!("{result:?}");
        return if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let ok = lives(&args) && bugs(args.bug_seeds) && fleets(&args) && mistakes(args.bug_seeds);
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn lives(args: &Args) -> bool {
    let delivered = AtomicU64::new(0);
    let began = Instant::now();
    let all = over_cores(
        args.from..u64::MAX,
        || delivered.load(Ordering::Relaxed) < args.inputs,
        |seed| live(seed, Bug::None).inspect(|life| _ = delivered.fetch_add(life.inputs, Ordering::Relaxed)),
    );
    if let Some((_, why)) = &all.bad {
        println!("{why}");
    }
    let figures = all.good;
    let median = |value: fn(&Figures) -> u64| {
        let mut list: Vec<u64> = figures.iter().map(value).collect();
        list.sort_unstable();
        list.get(list.len() / 2).copied().unwrap_or(0)
    };
    let commits: u64 = figures.iter().map(|life| life.commits).sum();
    let lived: Duration = figures.iter().map(|life| life.lived).sum();
    println!(
        "ring 2: {} lives, {} inputs (median {} a life), {commits} commits, median {} faults a life, {} virtual days, {:.1} s",
        figures.len(),
        delivered.load(Ordering::Relaxed),
        median(|life| life.inputs),
        median(|life| life.faults),
        lived.as_secs() / 86_400,
        began.elapsed().as_secs_f64()
    );
    let seen = figures.iter().fold(Seen::default(), |sum, life| sum.plus(life.seen));
    println!("ring 2: {seen:?}");
    all.bad.is_none() && !figures.is_empty() && seen.least() > 0
}

/// Every planted bug must be found: an oracle that cannot fail proves nothing.
fn bugs(seeds: u64) -> bool {
    let mut all = true;
    for bug in Bug::ALL {
        let Some((seed, why)) = over_cores(0..seeds, || true, |seed| live(seed, *bug)).bad else {
            println!("planted {bug:?}: NOT FOUND in {seeds} seeds");
            all = false;
            continue;
        };
        let first = why.lines().next().unwrap_or_default();
        let said = first.split_once(" inputs: ").map_or(first, |(_, said)| said);
        println!("planted {bug:?}: found at seed {seed}: {said}");
    }
    all
}

fn fleets(args: &Args) -> bool {
    let began = Instant::now();
    let seeds = args.from..args.from + args.fleets;
    let lives = over_cores(seeds, || true, |seed| shell::live(seed, Mistake::None));
    if let Some((_, why)) = &lives.bad {
        println!("{why}");
    }
    let total = |value: fn(&shell::Figures) -> u64| lives.good.iter().map(value).sum::<u64>();
    println!(
        "ring 3: {} lives of a fleet, {} commits, {} tool calls, {} children, {} faults, {} replicas died, {:.1} s",
        lives.good.len(),
        total(|f| f.commits),
        total(|f| f.tools),
        total(|f| f.children),
        total(|f| f.faults),
        total(|f| f.deaths),
        began.elapsed().as_secs_f64()
    );
    lives.bad.is_none()
}

fn mistakes(seeds: u64) -> bool {
    let mut all = true;
    for mistake in Mistake::ALL {
        if let Some((_, why)) = over_cores(0..seeds, || true, |seed| shell::live(seed, *mistake)).bad {
            println!("planted {why}");
        } else {
            println!("planted {mistake:?}: NOT FOUND in {seeds} seeds");
            all = false;
        }
    }
    all
}
