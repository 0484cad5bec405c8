//! Limits the rate at which the requests of one peer are read, because reading costs CPU time. Requests that are not
//! read yet wait at the peer; requests of several streams wait here, as many as the peer may have open.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Long-term rate, and the burst that may exceed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Time that one message takes.
    pub per_message: Duration,
    /// Number of bytes that count as one more message; more than 0.
    pub bytes_per_message: u32,
    /// Time that a peer may be ahead of the rate.
    pub burst: Duration,
}

impl Rate {
    fn cost(&self, messages: usize, bytes: usize) -> Duration {
        let per_message = self.per_message.as_nanos();
        let of = |count: usize| per_message.saturating_mul(u128::try_from(count).unwrap_or(u128::MAX));
        let nanos = of(messages).saturating_add(of(bytes) / u128::from(self.bytes_per_message.max(1)));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Holds one peer to a rate, over all of its streams.
#[derive(Debug)]
pub struct Pace {
    rate: Rate,
    /// Time at which all requests read so far would have been read at the long-term rate.
    due: Mutex<Instant>,
    /// Held by the request whose turn is next.
    turns: tokio::sync::Mutex<()>,
}

impl Pace {
    /// Nothing was read yet.
    pub fn new(rate: Rate) -> Self {
        Self { rate, due: Mutex::new(Instant::now()), turns: tokio::sync::Mutex::default() }
    }

    /// Counts what was read; returns how long to pause before more is read.
    #[must_use = "the peer is held back by the pause alone"]
    pub fn count(&self, messages: usize, bytes: usize) -> Duration {
        let now = Instant::now();
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let from = (*due).max(now);
        // What nobody could have sent counts as a day.
        *due = from.checked_add(self.rate.cost(messages, bytes)).unwrap_or(from + DAY);
        due.duration_since(now).saturating_sub(self.rate.burst)
    }

    /// Waits until one more request may be taken, in the order in which they came, and counts it then. One that is
    /// given up while it waits delays no other one.
    pub async fn turn(&self) {
        let _turn = self.turns.lock().await;
        let due = *self.due.lock().unwrap_or_else(PoisonError::into_inner) + self.rate.per_message;
        let pause = due.saturating_duration_since(Instant::now()).saturating_sub(self.rate.burst);
        if !pause.is_zero() {
            sleep(pause).await;
        }
        let _spent = self.count(1, 0);
    }
}

const DAY: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// 200 messages or 13.1 MB a second, 100 messages at once.
    const RATE: Rate =
        Rate { per_message: Duration::from_millis(5), bytes_per_message: 64 << 10, burst: Duration::from_millis(500) };

    /// Time that a peer needs that says so much as fast as it is read.
    async fn time_for(pace: &Pace, times: u32, messages: usize, bytes: usize) -> Duration {
        let from = Instant::now();
        for _ in 0..times {
            tokio::time::advance(pace.count(messages, bytes)).await;
        }
        from.elapsed()
    }

    /// Time that a peer needs that makes so many requests at once.
    async fn time_for_turns(pace: &Pace, times: usize) -> Duration {
        let from = Instant::now();
        futures::future::join_all((0..times).map(|_| pace.turn())).await;
        from.elapsed()
    }

    fn about(took: Duration, expected: u64) {
        let range = Duration::from_millis(expected.saturating_sub(10))..=Duration::from_millis(expected + 10);
        assert!(range.contains(&took), "{took:?} instead of {expected} ms");
    }

    #[tokio::test(start_paused = true)]
    async fn burst_is_read_at_once_the_rest_at_the_pace() {
        let pace = Pace::new(RATE);
        assert_eq!(time_for(&pace, 100, 1, 0).await, Duration::ZERO);
        about(time_for(&pace, 400, 1, 0).await, 2_000);
        // After a pause the peer may say as much again.
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(time_for(&pace, 100, 1, 0).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_at_once_take_turns_at_the_same_pace() {
        let pace = Pace::new(RATE);
        assert_eq!(time_for_turns(&pace, 100).await, Duration::ZERO);
        about(time_for_turns(&pace, 50).await, 250);
        let _spent = pace.count(0, 64 << 10);
        about(time_for_turns(&pace, 1).await, 10);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_are_given_up_while_they_wait_delay_no_other_one() {
        let pace = Pace::new(RATE);
        assert_eq!(time_for_turns(&pace, 100).await, Duration::ZERO);
        for _ in 0..10_000 {
            assert!(pace.turn().now_or_never().is_none(), "it waits");
        }
        about(time_for_turns(&pace, 1).await, 5);
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

    #[test]
    fn bytes_of_a_fast_rate_count_too() {
        let fast = Rate { per_message: Duration::from_secs(1) / 100_000, ..RATE };
        assert_eq!(fast.cost(0, 64 << 20), Duration::from_micros(10_240));
        assert_eq!(RATE.cost(2, 64 << 10), Duration::from_millis(15));
    }
}
