//! Pauses between tries, and when to give up.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::ClientError;

/// The first pause, and the longest one.
const PAUSE_FIRST: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Longest pause that a server may ask for; a longer one is shortened to this.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);

/// Failures in a row, since the last success.
#[derive(Debug)]
pub(crate) struct Retries {
    /// Longest time from the first failure to the last retry.
    retry_for: Duration,
    since: Option<Instant>,
    failures: u32,
}

impl Retries {
    pub(crate) fn new(retry_for: Duration) -> Self {
        Self { retry_for, since: None, failures: 0 }
    }

    /// Forgets the failures so far.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.retry_for);
    }

    /// Counts a failure and returns the pause before the next try. Fails with the error if a try would not help, or would
    /// come too late.
    pub(crate) fn next_pause(&mut self, error: &ClientError) -> Result<Duration, ClientError> {
        let since = *self.since.get_or_insert_with(Instant::now);
        let pause =
            spread(pause_after(self.failures)).max(error.retry_after().unwrap_or_default().min(RETRY_AFTER_MAX));
        self.failures += 1;
        if error.is_retryable() && since.elapsed() + pause <= self.retry_for { Ok(pause) } else { Err(error.clone()) }
    }

    /// Waits until the next try.
    pub(crate) async fn wait(&mut self, error: &ClientError) -> Result<(), ClientError> {
        let pause = self.next_pause(error)?;
        sleep(pause).await;
        Ok(())
    }
}

fn pause_after(failures: u32) -> Duration {
    PAUSE_FIRST.saturating_mul(1_u32 << failures.min(16)).min(PAUSE_MAX)
}

/// Draws between the half and the whole, so that clients which failed together do not come back together.
fn spread(whole: Duration) -> Duration {
    let (bits, _) = uuid::Uuid::new_v4().as_u64_pair();
    let part = f64::from(u32::try_from(bits >> 32).unwrap_or_default()) / f64::from(u32::MAX);
    whole / 2 + (whole / 2).mul_f64(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_are_spread() {
        let pauses: Vec<u128> = (0..7).map(|failures| pause_after(failures).as_millis()).collect();
        assert_eq!(pauses, [200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(pause_after(u32::MAX), PAUSE_MAX);
        for _ in 0..100 {
            let pause = spread(PAUSE_MAX);
            assert!(pause >= PAUSE_MAX / 2 && pause <= PAUSE_MAX, "{pause:?}");
        }
    }

    #[test]
    fn error_that_stays_is_not_retried_and_time_is_bounded() {
        let mut retries = Retries::new(Duration::from_mins(1));
        let denied = ClientError::new(crate::error::ErrorKind::AccessDenied, "unauthorized", "no");
        assert_eq!(retries.next_pause(&denied), Err(denied.clone()));
        let broken = ClientError::unreachable("broken");
        assert!(retries.next_pause(&broken).is_ok());
        assert_eq!(Retries::new(Duration::ZERO).next_pause(&broken), Err(broken));
    }

    #[tokio::test]
    async fn pause_of_the_server_is_obeyed() {
        let mut status = tonic::Status::resource_exhausted("full");
        status.metadata_mut().insert(proto::RETRY_AFTER_MS, 9_000.into());
        let mut retries = Retries::new(Duration::from_mins(1));
        assert_eq!(retries.next_pause(&status.into()), Ok(Duration::from_secs(9)));
    }
}
