//! Lives over all cores.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// What became of many lives.
#[derive(Debug)]
pub struct Lives<T, E> {
    /// Those that kept every rule.
    pub good: Vec<T>,
    /// Of those that did not, the one with the lowest seed.
    pub bad: Option<(u64, E)>,
}

/// Has `one` live each of the seeds while there is to be `more`, until one of them breaks a rule. Which one that is does not depend on
/// the cores: every lower seed is lived to its end.
pub fn over_cores<T: Send, E: Send>(
    seeds: Range<u64>,
    more: impl Fn() -> bool + Sync,
    one: impl Fn(u64) -> Result<T, E> + Sync,
) -> Lives<T, E> {
    let (next, end) = (AtomicU64::new(seeds.start), AtomicU64::new(seeds.end));
    let bad = Mutex::new(None);
    let work = || {
        let mut good = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end.load(Ordering::Relaxed) || !more() {
                return good;
            }
            match one(seed) {
                Ok(life) => good.push(life),
                Err(why) => {
                    end.fetch_min(seed, Ordering::Relaxed);
                    let mut lowest = bad.lock().unwrap_or_else(PoisonError::into_inner);
                    if lowest.as_ref().is_none_or(|(other, _)| seed < *other) {
                        *lowest = Some((seed, why));
                    }
                }
            }
        }
    };
    let cores = thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let good = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Vec<T>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().flat_map(join).collect()
    });
    Lives { good, bad: bad.into_inner().unwrap_or_else(PoisonError::into_inner) }
}
