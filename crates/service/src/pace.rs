//! How fast one peer is read: reading costs a processor, and what is not read yet waits at the peer's side.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// A pace in the long run, and what may go before it at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Time that one message takes.
    pub per_message: Duration,
    /// Time that one byte takes beside that.
    pub per_byte: Duration,
    /// Time that a peer may be ahead of the pace.
    pub burst: Duration,
}

/// Holds one peer to a rate, over all of its streams.
#[derive(Debug)]
pub struct Pace {
    rate: Rate,
    /// When all that was read so far would have been read at the pace of the long run.
    due: Mutex<Instant>,
}

impl Pace {
    /// Nothing was read yet.
    pub fn new(rate: Rate) -> Self {
        Self { rate, due: Mutex::new(Instant::now()) }
    }

    /// Counts what was read; returns how long to pause before more is read.
    #[must_use = "the peer is held back by the pause alone"]
    pub fn count(&self, messages: usize, bytes: usize) -> Duration {
        let times = |cost: Duration, count: usize| cost.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        let Rate { per_message, per_byte, burst } = self.rate;
        let now = Instant::now();
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        *due = (*due).max(now) + times(per_message, messages) + times(per_byte, bytes);
        due.duration_since(now).saturating_sub(burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 200 messages or 12.8 MB a second, 100 messages at once.
    const RATE: Rate = Rate {
        per_message: Duration::from_millis(5),
        per_byte: Duration::from_nanos(76),
        burst: Duration::from_millis(500),
    };

    /// Time that a peer needs that says so much as fast as it is read.
    async fn time_for(pace: &Pace, times: u32, messages: usize, bytes: usize) -> Duration {
        let from = Instant::now();
        for _ in 0..times {
            tokio::time::advance(pace.count(messages, bytes)).await;
        }
        from.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn burst_is_read_at_once_the_rest_at_the_pace() {
        let pace = Pace::new(RATE);
        assert_eq!(time_for(&pace, 100, 1, 0).await, Duration::ZERO);
        let took = time_for(&pace, 400, 1, 0).await;
        assert!((Duration::from_millis(1_990)..=Duration::from_millis(2_010)).contains(&took), "{took:?}");
        // After a pause the peer may say as much again.
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(time_for(&pace, 100, 1, 0).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn peer_that_keeps_to_the_pace_never_waits() {
        let pace = Pace::new(RATE);
        for _ in 0..10_000 {
            assert_eq!(pace.count(1, 1_000), Duration::ZERO);
            tokio::time::advance(Duration::from_millis(6)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn batches_and_long_messages_count_as_what_they_cost() {
        let pace = Pace::new(RATE);
        assert_eq!(time_for(&pace, 1, 100, 0).await, Duration::ZERO);
        assert_eq!(time_for(&pace, 1, 64, 0).await, Duration::from_millis(320));
        assert!(time_for(&pace, 1, 1, 4 << 20).await >= Duration::from_millis(300));
        // What nobody could have sent ends as well.
        assert!(pace.count(usize::MAX, usize::MAX) > Duration::from_secs(1_000));
    }
}
