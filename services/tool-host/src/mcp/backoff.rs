//! The pauses before a server is started again.

use std::time::Duration;

use contract::backoff::Backoff;

/// Pauses before the next try.
const WAITS: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
/// A server that served for this time begins with the first pause again.
const HEALTHY_AFTER: Duration = Duration::from_mins(1);

/// Backoff of one server.
#[derive(Debug, Default)]
pub(super) struct RestartBackoff {
    tries: u32,
}

impl RestartBackoff {
    /// Returns the next pause, after the server has run for `lived`; `salt` makes it differ between tool-hosts.
    pub(super) fn next_wait(&mut self, lived: Duration, salt: &str) -> Duration {
        if lived >= HEALTHY_AFTER {
            self.tries = 0;
        }
        let wait = WAITS.spread(self.tries, salt);
        self.tries = self.tries.saturating_add(1);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_after_a_healthy_run_starts_again() {
        let (mut backoff, short) = (RestartBackoff::default(), Duration::from_secs(1));
        for tries in 0..8 {
            assert_eq!(backoff.next_wait(short, "a"), WAITS.spread(tries, "a"));
        }
        assert_eq!(backoff.next_wait(HEALTHY_AFTER, "a"), WAITS.spread(0, "a"));
        assert_eq!(backoff.next_wait(short, "a"), WAITS.spread(1, "a"));
    }
}
