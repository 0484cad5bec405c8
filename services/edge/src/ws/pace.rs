//! How fast the frames of one connection are read.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Requests of one connection that are read each second in the long run.
const REQUESTS_PER_S: u32 = 200;
/// Requests that are read at once after a while without any.
const BURST: u32 = 400;
/// Bytes of a frame that count as a request more.
const BYTES_PER_REQUEST: usize = 64 << 10;

/// Holds back a client that asks faster than it may: what is not read yet waits at its side, and costs nobody else CPU.
#[derive(Debug)]
pub(super) struct Pace {
    /// When all that was read so far would have been read at the pace of the long run.
    due: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { due: Instant::now() }
    }

    /// Counts what was read.
    pub(super) fn count(&mut self, requests: usize, bytes: usize) {
        let requests = requests.max(1).saturating_add(bytes / BYTES_PER_REQUEST);
        self.due = self.due.max(Instant::now()) + time_of(u32::try_from(requests).unwrap_or(u32::MAX));
    }

    /// Waits until the next frame may be read.
    pub(super) async fn keep(&self) {
        if let Some(next) = self.due.checked_sub(time_of(BURST)).filter(|next| *next > Instant::now()) {
            sleep_until(next).await;
        }
    }
}

fn time_of(requests: u32) -> Duration {
    Duration::from_secs(1).saturating_mul(requests) / REQUESTS_PER_S
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn time_for(pace: &mut Pace, frames: u32, requests: usize, bytes: usize) -> Duration {
        let from = Instant::now();
        for _ in 0..frames {
            pace.count(requests, bytes);
            pace.keep().await;
        }
        from.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn burst_is_read_at_once_the_rest_at_the_pace() {
        let mut pace = Pace::new();
        assert_eq!(time_for(&mut pace, BURST, 1, 10).await, Duration::ZERO);
        let took = time_for(&mut pace, 2 * REQUESTS_PER_S, 1, 10).await;
        assert!((Duration::from_millis(1_990)..=Duration::from_millis(2_500)).contains(&took), "{took:?}");
        // After a pause the client may ask for as much again.
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(time_for(&mut pace, BURST, 1, 10).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn batches_and_long_frames_count_as_what_they_cost() {
        let mut pace = Pace::new();
        assert_eq!(time_for(&mut pace, 1, BURST as usize, 10).await, Duration::ZERO);
        assert!(time_for(&mut pace, 1, 64, 10).await >= Duration::from_millis(300));
        assert!(time_for(&mut pace, 1, 1, 4 << 20).await >= Duration::from_millis(300));
    }
}
