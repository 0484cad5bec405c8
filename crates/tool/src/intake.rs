//! The subscription of one tool's calls, which ends without losing a call.
//!
//! async-nats 0.51 forgets a drained subscription at the next poll of its connection, which may come before the server
//! has read the UNSUB: calls that the server sends until then are dropped unread. A subscription that ends after a
//! number of messages has no such gap, since both sides count the same messages: the server stops by itself after the
//! last one.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::{Message, Subscriber};
use futures::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep_until};

/// Calls that are taken after a stop: far more than are under way between server and client at one time.
const LAST_CALLS_MAX: u64 = 16;
/// Without a call for this time after a stop, none is under way, and the subscription is drained.
const QUIET_AFTER: Duration = Duration::from_millis(50);

/// The subscription of one tool's calls.
pub(crate) struct Intake {
    calls: Subscriber,
    /// Messages that were read from the subscription.
    read_count: u64,
    /// Messages that were read when the end began.
    buffered: VecDeque<Message>,
    state: IntakeState,
}

enum IntakeState {
    /// The subscription receives calls.
    Open,
    /// The server stops after a few more calls; drained when none comes until this instant.
    Counted(Instant),
    /// The server stops, and the messages that it had sent are read.
    Drained,
    /// No further message comes.
    Ended,
}

impl Intake {
    pub(crate) fn new(calls: Subscriber) -> Self {
        Self { calls, read_count: 0, buffered: VecDeque::new(), state: IntakeState::Open }
    }

    /// Ends the subscription after the last calls.
    pub(crate) async fn end(&mut self) {
        // The count includes all messages that this subscription ever had, also the buffered ones.
        while let Some(Some(message)) = self.calls.next().now_or_never() {
            self.read_count += 1;
            self.buffered.push_back(message);
        }
        let unsubscribed = self.calls.unsubscribe_after(self.read_count + LAST_CALLS_MAX).await;
        self.state =
            if unsubscribed.is_ok() { IntakeState::Counted(Instant::now() + QUIET_AFTER) } else { IntakeState::Ended };
    }

    /// Whether no further call comes.
    pub(crate) fn is_ended(&self) -> bool {
        matches!(self.state, IntakeState::Ended) && self.buffered.is_empty()
    }

    /// Returns the next call; `None` when the subscription has ended.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        if let Some(message) = self.buffered.pop_front() {
            return Some(message);
        }
        loop {
            let message = match self.state {
                IntakeState::Ended => None,
                IntakeState::Open | IntakeState::Drained => self.calls.next().await,
                IntakeState::Counted(quiet_at) => tokio::select! {
                    biased;
                    message = self.calls.next() => message,
                    () = sleep_until(quiet_at) => {
                        self.state = if self.calls.drain().await.is_ok() { IntakeState::Drained } else { IntakeState::Ended };
                        continue;
                    }
                },
            };
            if message.is_some() {
                self.read_count += 1;
                if matches!(self.state, IntakeState::Counted(_)) {
                    self.state = IntakeState::Counted(Instant::now() + QUIET_AFTER);
                }
            } else {
                self.state = IntakeState::Ended;
            }
            return message;
        }
    }
}
