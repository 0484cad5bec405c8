//! Pauses before an item that was handed back is delivered again.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::backoff::Backoff;
use tokio::time::Instant;

use super::share::Share;
use crate::Delivery;

/// The pauses of an item whose share has few others that wait.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
/// Between two items of one share that come again: 500 of them a second at most, however many there are.
const SPACING: Duration = Duration::from_millis(2);
/// The longest pause of all.
const BACKLOG_LONGEST: Duration = Duration::from_secs(30);
/// Shares whose backlog is known; the state is dropped when there are more, and the next pauses are short again.
const SHARES_MAX: usize = 4_096;

/// The backlog of each share: when the last one of it comes again.
#[derive(Debug, Default)]
pub(super) struct Backlog(BTreeMap<Share, Instant>);

impl Backlog {
    /// Returns the pause before this item is redelivered. It grows with each delivery, and ends after the pauses of the
    /// items of its share that were handed back before, so that not all of them return at once.
    pub(super) fn pause(&mut self, share: &Share, delivery: &Delivery) -> Duration {
        let now = Instant::now();
        if self.0.len() >= SHARES_MAX && !self.0.contains_key(share) {
            self.0.retain(|_, last| *last > now);
            if self.0.len() >= SHARES_MAX {
                self.0.clear();
            }
        }
        let own = own_pause(delivery);
        let last = self.0.entry(share.clone()).or_insert(now);
        *last = (*last + SPACING).clamp(now, now + BACKLOG_LONGEST);
        own.max(last.saturating_duration_since(now)).min(BACKLOG_LONGEST)
    }
}

/// Doubles with each delivery, and is spread by the item, so that those that came together part.
fn own_pause(delivery: &Delivery) -> Duration {
    let tries = u32::try_from(delivery.delivered.saturating_sub(1)).unwrap_or(u32::MAX);
    BACKOFF.spread(tries, &delivery.seq.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::Timestamp;

    fn delivery(seq: u64, delivered: u64) -> Delivery {
        Delivery {
            subject: String::new(),
            seq,
            delivered,
            stored_at: Timestamp::default(),
            waited: Duration::ZERO,
            connected_for: Duration::MAX,
            generation: 1,
            headers: Vec::new(),
            payload: bytes::Bytes::new(),
            ack: String::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_with_deliveries_and_with_the_backlog() {
        let mut backlog = Backlog::default();
        let share = |tenant: &str| Share { tenant: tenant.to_owned(), resource: "x".to_owned() };
        let pauses: Vec<Duration> = (1..=10).map(|times| backlog.pause(&share("a"), &delivery(7, times))).collect();
        for (tries, pause) in (0..).zip(&pauses) {
            let whole = BACKOFF.pause(tries);
            assert!(*pause >= whole / 2 && *pause <= whole, "{tries}: {pause:?}");
        }
        let many: Vec<Duration> = (0..10_000).map(|seq| backlog.pause(&share("b"), &delivery(seq, 1))).collect();
        assert!(many[9_999] > Duration::from_secs(19), "{:?}", many[9_999]);
        assert!(backlog.pause(&share("c"), &delivery(1, 1)) <= BACKOFF.pause(0), "the backlog of others is not ours");
        for _ in 0..20_000 {
            assert!(backlog.pause(&share("b"), &delivery(1, 1)) <= BACKLOG_LONGEST);
        }
        tokio::time::sleep(BACKLOG_LONGEST).await;
        assert!(backlog.pause(&share("b"), &delivery(1, 1)) <= BACKOFF.pause(0), "it came again meanwhile");
    }
}
