//! Whether the clock of this replica may be decided by: it must be near that of nats-server.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bus::{Bus, BusError};
use contract::Timestamp;
use contract::limits::CLOCK_SKEW_MAX;
use tokio::time::Instant;

/// How long the server's answer is believed.
const BELIEVED: Duration = Duration::from_secs(10);

/// How far the clock of this replica is from the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Skew {
    by: Duration,
    is_ahead: bool,
}

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.is_ahead { "ahead of" } else { "behind" };
        write!(f, "the clock of this host is {} s {direction} that of nats-server; set it, by NTP", self.by.as_secs())
    }
}

/// Compares clocks, with as few questions to the server as will do.
#[derive(Debug, Default)]
pub(crate) struct SkewCheck(Mutex<Option<(Instant, Option<Skew>)>>);

impl SkewCheck {
    /// The skew that forbids to decide now; `stored_at` is when the server took the input.
    ///
    /// An input was stored before it came, so one that was stored at most [`CLOCK_SKEW_MAX`] ago by this clock shows that the clock is
    /// not far ahead. Any other one is a suspicion only: it may have waited, or the server's clock may have been wrong when it came.
    /// Then the server is asked what time it is.
    pub(crate) async fn check(
        &self,
        bus: &Bus,
        now: Timestamp,
        stored_at: Timestamp,
    ) -> Result<Option<Skew>, BusError> {
        if skew(now, stored_at).is_none() {
            return Ok(None);
        }
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((asked, skew)) = known
            && asked.elapsed() < BELIEVED
        {
            return Ok(skew);
        }
        let asked = Instant::now();
        let skew = skew(now, bus.transport().server_time().await?);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((asked, skew));
        Ok(skew)
    }
}

/// How far `now` is from the server's time, where that is too far.
fn skew(now: Timestamp, server: Timestamp) -> Option<Skew> {
    let (ahead, behind) = (now.since(server), server.since(now));
    let skew = Skew { by: ahead.max(behind), is_ahead: ahead > behind };
    (skew.by > CLOCK_SKEW_MAX).then_some(skew)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clock_off_by_more_than_a_minute_is_reported_and_a_long_wait_is_not() {
        let server = bus::MemoryServer::new();
        let bus = server.bus();
        let hours = |n: u64| Duration::from_hours(n);
        let true_now = server.now();
        let early = Timestamp::from_millis(true_now.as_millis() - 3_600_000);
        for (now, stored_at, expected) in [
            (true_now, true_now, None),
            (true_now, early, None),
            (true_now.after(hours(12)), true_now, Some((12 * 3_600, true))),
            (early, true_now, Some((3_600, false))),
            (true_now, true_now.after(hours(1)), None),
            (true_now.after(Duration::from_secs(59)), true_now, None),
        ] {
            let skew = SkewCheck::default().check(&bus, now, stored_at).await.unwrap();
            assert_eq!(skew.map(|skew| (skew.by.as_secs(), skew.is_ahead)), expected, "{now} {stored_at}");
        }
    }
}
