//! Runs of many seeds over all cores.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// The results of many runs.
#[derive(Debug)]
pub struct Runs<T, E> {
    /// Results of the runs that broke no rule.
    pub passed: Vec<T>,
    /// Lowest seed whose run broke a rule, with its error.
    pub failed: Option<(u64, E)>,
}

/// Calls `one` for each seed while `more` returns true, until a run fails. The reported failure does not depend on the
/// number of cores: every lower seed is run to its end.
pub fn run_seeds<T: Send, E: Send>(
    seeds: Range<u64>,
    more: impl Fn() -> bool + Sync,
    one: impl Fn(u64) -> Result<T, E> + Sync,
) -> Runs<T, E> {
    let (next, end) = (AtomicU64::new(seeds.start), AtomicU64::new(seeds.end));
    let failed = Mutex::new(None);
    let work = || {
        let mut passed = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end.load(Ordering::Relaxed) || !more() {
                return passed;
            }
            match one(seed) {
                Ok(result) => passed.push(result),
                Err(why) => {
                    end.fetch_min(seed, Ordering::Relaxed);
                    let mut lowest = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    if lowest.as_ref().is_none_or(|(other, _)| seed < *other) {
                        *lowest = Some((seed, why));
                    }
                }
            }
        }
    };
    let cores = thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let passed = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Vec<T>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().flat_map(join).collect()
    });
    Runs { passed, failed: failed.into_inner().unwrap_or_else(PoisonError::into_inner) }
}
