//! How long is waited before a server is started again.

use std::time::Duration;

/// Before the first try again; each further one waits twice as long.
const FIRST: Duration = Duration::from_millis(500);
/// The longest wait.
const LAST: Duration = Duration::from_secs(30);
/// A server that served for so long begins anew with [`FIRST`] when it goes down.
const HEALTHY_AFTER: Duration = Duration::from_mins(1);

/// The waits of one server.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    tries: u32,
}

impl Backoff {
    /// The wait after a life of this length; `chance` of 0 to 255 makes half of it differ between executors.
    pub(super) fn after(&mut self, lived: Duration, chance: u8) -> Duration {
        if lived >= HEALTHY_AFTER {
            self.tries = 0;
        }
        let whole = FIRST.saturating_mul(1 << self.tries.min(16)).min(LAST);
        self.tries = self.tries.saturating_add(1);
        whole / 2 + whole / 2 * u32::from(chance) / 255
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_a_limit_and_begins_anew_after_a_healthy_while() {
        let mut backoff = Backoff::default();
        let short = Duration::from_secs(1);
        let waits: Vec<u128> = (0..8).map(|_| backoff.after(short, 255).as_millis()).collect();
        assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
        assert_eq!(backoff.after(short, 0), LAST / 2);
        assert_eq!(backoff.after(HEALTHY_AFTER, 255), FIRST);
        assert_eq!(backoff.after(short, 255), FIRST * 2);
    }
}
