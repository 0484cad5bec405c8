//! How doubts are asked about again: how often, and after which pauses.

use std::time::Duration;

/// Rounds in which one doubt may be settled, before the caller is told that nobody knows.
pub(crate) const ROUNDS_MAX: u32 = 8;

const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(500);

/// The pause before round `round` (from 1): doubles, and is spread by `salt` so that two writers part. Derived, not
/// rolled, so that a simulation repeats.
pub(crate) fn pause(round: u32, salt: &str) -> Duration {
    let full = FIRST.saturating_mul(1_u32 << round.min(10)).min(LONGEST);
    let hash = salt
        .bytes()
        .chain(round.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // Between a half and the whole.
    full / 2 + full.mul_f64(0.5 * f64::from(u32::try_from(hash >> 40).unwrap_or(0)) / f64::from(1_u32 << 24))
}

/// Sleeps for [`pause`].
pub(crate) async fn wait(round: u32, salt: &str) {
    tokio::time::sleep(pause(round, salt)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_differ() {
        assert!(pause(1, "a") <= Duration::from_millis(10));
        assert!(pause(30, "a") <= LONGEST && pause(30, "a") >= LONGEST / 2);
        assert_ne!(pause(3, "a"), pause(3, "b"));
    }
}
