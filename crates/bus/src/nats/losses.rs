//! Detects that messages of one subscription may be lost: its connection broke, or it was read too slowly.

use async_nats::Subscriber;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};

/// Notices of lost messages for one subscription.
#[derive(Debug)]
pub(super) struct Losses {
    gaps: Receiver<()>,
    slow: Receiver<u64>,
    /// The subscription's number; none where it is not known, and every slow subscription counts.
    pub(super) sid: Option<u64>,
}

impl Losses {
    /// The losses from now on. Until its number is set, every slow subscription counts.
    pub(super) fn new(gaps: &Sender<()>, slow: &Sender<u64>) -> Self {
        Self { gaps: gaps.subscribe(), slow: slow.subscribe(), sid: None }
    }

    /// Returns when messages may be lost.
    pub(super) async fn next(&mut self) {
        loop {
            tokio::select! {
                biased;
                // A notice, or notices that were missed: either is a gap.
                _ = self.gaps.recv() => return,
                slow = self.slow.recv() => match slow {
                    Ok(sid) if self.sid.is_none_or(|own| own == sid) => return,
                    Ok(_) => {}
                    Err(RecvError::Lagged(_) | RecvError::Closed) => return,
                },
            }
        }
    }
}

/// The number of a subscription, by which events name it. async-nats shows it nowhere else.
pub(super) fn sid_of(subscriber: &Subscriber) -> Option<u64> {
    sid_in(&format!("{subscriber:?}"))
}

fn sid_in(debug: &str) -> Option<u64> {
    let (_, rest) = debug.split_once("sid: ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::broadcast;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn slow_subscription_is_the_only_one_with_a_gap() {
        let ((gaps, _), (slow, _)) = (broadcast::channel(4), broadcast::channel(4));
        let mut all = [Some(7), Some(8), None].map(|sid| Losses { sid, ..Losses::new(&gaps, &slow) });
        slow.send(7).unwrap();
        let mut lost = Vec::new();
        for losses in &mut all {
            lost.push(timeout(Duration::from_secs(1), losses.next()).await.is_ok());
        }
        assert_eq!(lost, [true, false, true]);
        gaps.send(()).unwrap();
        for losses in &mut all {
            timeout(Duration::from_secs(1), losses.next()).await.unwrap();
        }
    }

    #[test]
    fn debug_text_of_a_subscription_yields_its_number() {
        assert_eq!(sid_in("Subscriber { sid: 42, receiver: Receiver { chan: Rx } }"), Some(42));
        assert_eq!(sid_in("Subscriber"), None);
    }
}
