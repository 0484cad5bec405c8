//! A turn's clock: it stops while the session is paused or a person is asked.

use std::time::Duration;

use contract::Timestamp;
use serde::{Deserialize, Serialize};

/// Time used, and since when it runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Clock {
    limit_ms: u64,
    /// Time that one answer to a question grants, in milliseconds.
    #[serde(default)]
    grant_ms: u64,
    used_ms: u64,
    running_since: Option<Timestamp>,
}

impl Clock {
    pub(crate) fn start(at: Timestamp, limit: Duration) -> Self {
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        Self { limit_ms, grant_ms: limit_ms, used_ms: 0, running_since: Some(at) }
    }

    /// Starts or stops it; doing so twice changes nothing.
    pub(crate) fn run(&mut self, at: Timestamp, running: bool) {
        match (self.running_since, running) {
            (None, true) => self.running_since = Some(at),
            (Some(since), false) => {
                self.used_ms = self.used_ms.saturating_add(used(since, at));
                self.running_since = None;
            }
            (Some(_), true) | (None, false) => {}
        }
    }

    /// Grants as much again, from what was used on.
    pub(crate) fn extend(&mut self) {
        let grant = self.grant_ms;
        self.limit_ms = self.limit_ms.max(self.used_ms).saturating_add(grant);
    }

    /// Allows so much time from now on, however much was used.
    pub(crate) fn allow(&mut self, now: Timestamp, time: Duration) {
        let running = self.running_since.map_or(0, |since| used(since, now));
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.limit_ms = self.used_ms.saturating_add(running).saturating_add(time);
    }

    /// Another limit holds from now on; what was used stays used.
    pub(crate) fn limit(&mut self, limit: Duration) {
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        // What answers granted beyond the old limit stays granted.
        let granted = self.limit_ms.saturating_sub(self.grant_ms);
        self.limit_ms = limit_ms.saturating_add(granted);
        self.grant_ms = limit_ms;
    }

    /// Returns the time at which the limit is reached; none while the clock is stopped.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        let left = Duration::from_millis(self.limit_ms.saturating_sub(self.used_ms));
        self.running_since.map(|since| since.after(left))
    }

    /// Returns the time at which the limit is reached; a stopped clock counts as started at `now`.
    pub(crate) fn deadline_from(&self, now: Timestamp) -> Timestamp {
        let left = Duration::from_millis(self.limit_ms.saturating_sub(self.used_ms));
        self.running_since.unwrap_or(now).after(left)
    }
}

fn used(since: Timestamp, at: Timestamp) -> u64 {
    u64::try_from(at.since(since).as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_while_paused_stands_still() {
        let at = Timestamp::from_millis;
        let mut clock = Clock::start(at(1_000), Duration::from_millis(500));
        assert_eq!(clock.deadline(), Some(at(1_500)));
        clock.run(at(1_200), false);
        clock.run(at(1_300), false);
        assert_eq!(clock.deadline(), None);
        clock.run(at(9_000), true);
        clock.run(at(9_100), true);
        assert_eq!(clock.deadline(), Some(at(9_300)));
        assert_eq!(clock.deadline_from(at(9_200)), at(9_300));
    }
}
