//! How fast an MCP server may speak: reading what it says costs a processor, and it need not have been asked.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::name::ServerName;

/// What one message costs: at most 500 are read in a second.
const PER_MESSAGE: Duration = Duration::from_millis(2);
/// What each byte costs: at most 33 MB are read in a second.
const PER_BYTE: Duration = Duration::from_nanos(30);
/// What a server may save up by silence: 1,000 messages, or 66 MB.
const BURST: Duration = Duration::from_secs(2);
/// A shorter pause is not worth a line in the log.
const LOGGED_PAUSE: Duration = Duration::from_millis(200);

/// The pace of one server, over all of its streams.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    server: ServerName,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// Until when what was read is paid for.
    paid_until: Instant,
    is_logged: bool,
}

impl Pace {
    pub(super) fn new(server: ServerName) -> Self {
        let state = State { paid_until: Instant::now(), is_logged: false };
        Self { server, state: Arc::new(Mutex::new(state)) }
    }

    /// Counts what was read; returns how long to pause before more is read. The first long pause is logged.
    pub(super) fn count(&self, messages: usize, bytes: usize) -> Duration {
        let now = Instant::now();
        let times = |cost: Duration, count: usize| cost.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let saved = now.checked_sub(BURST).unwrap_or(now);
        state.paid_until = state.paid_until.max(saved) + times(PER_MESSAGE, messages) + times(PER_BYTE, bytes);
        let pause = state.paid_until.saturating_duration_since(now);
        if pause > LOGGED_PAUSE && !std::mem::replace(&mut state.is_logged, true) {
            tracing::warn!(server = %self.server, "an MCP server says too much: it is read more slowly from now on");
        }
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn server_that_floods_is_slowed_down_and_one_that_does_not_is_not() {
        let pace = Pace::new(ServerName::try_from("s".to_owned()).unwrap());
        tokio::time::advance(Duration::from_mins(1)).await;
        for _ in 0..10_000 {
            assert_eq!(pace.count(1, 1_000), Duration::ZERO);
            tokio::time::advance(Duration::from_millis(5)).await;
        }
        let began = Instant::now();
        for _ in 0..10_000 {
            tokio::time::advance(pace.count(1, 100)).await;
        }
        assert!((18..22).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    }
}
