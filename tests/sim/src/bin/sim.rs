//! Runs the simulation: many lives over all cores, then every planted bug. Prints seeds, so that a life can be lived
//! again with `--seed`.

#![allow(clippy::print_stdout, reason = "it is a command")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use simulation::plant::Bug;
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
    let (next, delivered, failed) = (AtomicU64::new(args.from), AtomicU64::new(0), AtomicBool::new(false));
    let began = Instant::now();
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let work = || {
        let mut figures: Vec<Figures> = Vec::new();
        while delivered.load(Ordering::Relaxed) < args.inputs && !failed.load(Ordering::Relaxed) {
            match live(next.fetch_add(1, Ordering::Relaxed), Bug::None) {
                Ok(life) => {
                    delivered.fetch_add(life.inputs, Ordering::Relaxed);
                    figures.push(life);
                }
                Err(why) => {
                    println!("{why}");
                    failed.store(true, Ordering::Relaxed);
                }
            }
        }
        figures
    };
    let figures: Vec<Figures> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    });
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
    !failed.load(Ordering::Relaxed) && !figures.is_empty() && seen.least() > 0
}

/// Every planted bug must be found: an oracle that cannot fail proves nothing.
fn bugs(seeds: u64) -> bool {
    let mut all = true;
    for bug in Bug::ALL {
        let Some((seed, why)) = (0..seeds).find_map(|seed| live(seed, *bug).err().map(|why| (seed, why))) else {
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
    let (next, failed) = (AtomicU64::new(args.from), AtomicBool::new(false));
    let began = Instant::now();
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let work = || {
        let mut sum = (0, shell::Figures::default());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= args.from + args.fleets || failed.load(Ordering::Relaxed) {
                return sum;
            }
            match shell::live(seed, Mistake::None) {
                Ok(life) => {
                    sum.0 += 1;
                    sum.1.commits += life.commits;
                    sum.1.faults += life.faults;
                    sum.1.deaths += life.deaths;
                    sum.1.tools += life.tools;
                    sum.1.children += life.children;
                }
                Err(why) => {
                    println!("{why}");
                    failed.store(true, Ordering::Relaxed);
                }
            }
        }
    };
    let sums: Vec<(u64, shell::Figures)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let total = |value: fn(&shell::Figures) -> u64| sums.iter().map(|(_, figures)| value(figures)).sum::<u64>();
    println!(
        "ring 3: {} lives of a fleet, {} commits, {} tool calls, {} children, {} faults, {} replicas died, {:.1} s",
        sums.iter().map(|(lives, _)| lives).sum::<u64>(),
        total(|f| f.commits),
        total(|f| f.tools),
        total(|f| f.children),
        total(|f| f.faults),
        total(|f| f.deaths),
        began.elapsed().as_secs_f64()
    );
    !failed.load(Ordering::Relaxed) && sums.len() == cores
}

fn mistakes(seeds: u64) -> bool {
    let mut all = true;
    for mistake in Mistake::ALL {
        if let Some(why) = (0..seeds).find_map(|seed| shell::live(seed, *mistake).err()) {
            println!("planted {why}");
        } else {
            println!("planted {mistake:?}: NOT FOUND in {seeds} seeds");
            all = false;
        }
    }
    all
}
