//! Pauses between tries.

use std::time::Duration;

/// Pauses that double with each try, up to the longest one.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Pauses from the first to the longest one.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The pause after so many tries, from 0 for the first one.
    pub fn pause(self, tries: u32) -> Duration {
        self.first.saturating_mul(1_u32 << tries.min(31)).min(self.longest)
    }

    /// The pause after one of this length.
    pub fn after(self, pause: Duration) -> Duration {
        pause.saturating_mul(2).clamp(self.first, self.longest)
    }

    /// The pause after so many tries, spread by `salt` between half of it and the whole, so that clients that failed
    /// together do not retry together. It is derived, not random, so that a simulation is repeatable.
    pub fn spread(self, tries: u32, salt: &str) -> Duration {
        let whole = self.pause(tries);
        whole / 2 + (whole / 2).mul_f64(part(salt, tries))
    }
}

/// A part of one, below one, that follows from these two.
pub fn part(salt: &str, number: u32) -> f64 {
    let hash = salt
        .bytes()
        .chain(number.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    f64::from(u32::try_from(hash >> 40).unwrap_or(0)) / f64::from(1_u32 << 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_one_and_are_spread() {
        let backoff = Backoff::new(Duration::from_millis(5), Duration::from_millis(500));
        let pauses: Vec<u128> = (0..9).map(|tries| backoff.pause(tries).as_millis()).collect();
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 500, 500]);
        assert_eq!(backoff.pause(u32::MAX), Duration::from_millis(500));
        assert_eq!(backoff.after(Duration::ZERO), Duration::from_millis(5));
        assert_eq!(backoff.after(Duration::from_millis(300)), Duration::from_millis(500));
        for tries in 0..20 {
            let (whole, pause) = (backoff.pause(tries), backoff.spread(tries, "a"));
            assert!(pause >= whole / 2 && pause <= whole, "{pause:?}");
        }
        assert_ne!(backoff.spread(3, "a"), backoff.spread(3, "b"));
    }
}
