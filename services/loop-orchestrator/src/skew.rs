//! Checks that the clock of this replica is near that of nats-server, since decisions depend on it.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bus::{Bus, BusError};
use contract::Timestamp;
use contract::limits::CLOCK_SKEW_MAX;
use tokio::time::Instant;

/// Time for which the measured skew is used before the server is asked again.
const SERVER_TIME_TTL: Duration = Duration::from_secs(10);

/// Difference between the clocks of this replica and of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Skew {
    distance: Duration,
    is_ahead: bool,
}

impl fmt::Display for Skew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.is_ahead { "ahead of" } else { "behind" };
        write!(
            f,
            "the clock of this host is {} s {direction} that of nats-server; set it, by NTP",
            self.distance.as_secs()
        )
    }
}

/// Compares the clocks, with few requests to the server.
#[derive(Debug, Default)]
pub(crate) struct SkewCheck(Mutex<Option<(Instant, Option<Skew>)>>);

impl SkewCheck {
    /// Returns the skew if it is too large to decide now. The server stored the input at `stored_at`.
    ///
    /// An input is stored before it is delivered. So if it was stored at most [`CLOCK_SKEW_MAX`] ago by this clock, the
    /// clock is not far ahead. Another input proves nothing: it may have waited, or the server's clock may have been
    /// wrong when it was stored. Then the server is asked for its time.
    pub(crate) async fn check(
        &self,
        bus: &Bus,
        now: Timestamp,
        stored_at: Timestamp,
    ) -> Result<Option<Skew>, BusError> {
        if measure_skew(now, stored_at).is_none() {
            return Ok(None);
        }
        let cached = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((asked_at, skew)) = cached
            && asked_at.elapsed() < SERVER_TIME_TTL
        {
            return Ok(skew);
        }
        let asked_at = Instant::now();
        let skew = measure_skew(now, bus.transport().server_time().await?);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((asked_at, skew));
        Ok(skew)
    }
}

/// Returns how far `now` is from the server's time, if that is more than [`CLOCK_SKEW_MAX`].
fn measure_skew(now: Timestamp, server: Timestamp) -> Option<Skew> {
    let (ahead, behind) = (now.since(server), server.since(now));
    let skew = Skew { distance: ahead.max(behind), is_ahead: ahead > behind };
    (skew.distance > CLOCK_SKEW_MAX).then_some(skew)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clock_off_by_more_than_a_minute_is_reported_and_long_wait_is_not() {
        let server = bus_memory::MemoryServer::new();
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
            assert_eq!(skew.map(|skew| (skew.distance.as_secs(), skew.is_ahead)), expected, "{now} {stored_at}");
        }
    }
}
