//! Checks whether a replica still holds a call: the request can be lost on its way, and the answer when a connection
//! breaks.
//!
//! Replicas that know the header `Ailoop-Running` are asked. Where none of them knows it, only a broken connection is a
//! reason not to wait until the deadline.

use std::time::Duration;

use bus::{Bus, BusError, SubscriptionEvent};
use bytes::Bytes;
use contract::subject::Subject;
use contract::tool::header;
use futures::StreamExt;
use tokio::time::{Instant, timeout_at};

use super::call_deadline::ReplicaState;

/// Time after which a silent call is first checked: by then a tool of the library has sent its receipt.
const FIRST_CHECK_AFTER: Duration = Duration::from_secs(2);
/// Pause between two checks.
const RECHECK_AFTER: Duration = Duration::from_secs(2);
/// The same where no replica answers: all may be about to connect again.
const SILENCE_RECHECK_AFTER: Duration = Duration::from_secs(5);
/// Time that replicas have to answer.
const QUERY_MAX: Duration = Duration::from_millis(750);
/// After a broken connection: time in which the answer may still arrive. Within it the tool has reconnected, too.
const GRACE: Duration = Duration::from_secs(5);
/// The same after a longer outage of NATS, counted from its first answer.
const GRACE_AFTER_OUTAGE: Duration = Duration::from_secs(3);
/// Denials in a row after which a repeatable call is lost.
const DENIALS_REPEATABLE_MIN: u32 = 2;
/// Denials in a row after which a call that must not run twice is lost.
const DENIALS_MIN: u32 = 3;

/// Answer of the replicas of a tool about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplicaAnswer {
    /// One of them works on the call.
    Running,
    /// All that answered do not work on the call.
    Denied,
    /// A replica does not know the header.
    Unclear,
    /// No replica answered: it may be about to connect again.
    Silent,
    /// NATS did not answer.
    NatsUnavailable,
}

/// Cause of the loss of a call that its tool may still have carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// The connection was lost, and the answer may be lost with it.
    Connection,
    /// Replicas answer, and none of them holds the call.
    NotHeld,
    /// The replica that worked on the call is gone.
    Replica,
}

/// State of the checks of one call that was sent.
#[derive(Debug)]
pub(super) struct ReplicaCheck {
    is_repeatable: bool,
    /// Time of the next check; `None` where none is needed.
    next_check_at: Option<Instant>,
    /// Whether the connection broke since the last sign of the call.
    has_gap: bool,
    was_away: bool,
    denials: u32,
    /// Pings in a row by which the replica that worked on the call works on it no more.
    ended_pings: u32,
}

impl ReplicaCheck {
    pub(super) fn new(is_repeatable: bool) -> Self {
        let next_check_at = Some(Instant::now() + FIRST_CHECK_AFTER);
        Self { is_repeatable, next_check_at, has_gap: false, was_away: false, denials: 0, ended_pings: 0 }
    }

    pub(super) fn next_check_at(&self) -> Option<Instant> {
        self.next_check_at
    }

    /// Records that the connection broke: the answer may be lost.
    pub(super) fn record_gap(&mut self) {
        self.has_gap = true;
        self.next_check_at = Some(Instant::now() + GRACE);
    }

    /// Ends the checks: the tool has shown that it holds the call and knows where to answer. A replica that has named
    /// itself is pinged from here on.
    pub(super) fn record_progress(&mut self) {
        *self = Self { next_check_at: None, ..Self::new(self.is_repeatable) };
    }

    /// Tells after a ping of the replica that has named itself whether the call is lost.
    pub(super) fn evaluate_ping(&mut self, state: ReplicaState) -> Option<Loss> {
        match state {
            ReplicaState::There => {
                self.ended_pings = 0;
                None
            }
            ReplicaState::Gone => Some(Loss::Replica),
            ReplicaState::Ended => {
                self.ended_pings += 1;
                (self.ended_pings >= self.denials_min()).then_some(Loss::NotHeld)
            }
        }
    }

    fn denials_min(&self) -> u32 {
        if self.is_repeatable { DENIALS_REPEATABLE_MIN } else { DENIALS_MIN }
    }

    /// Tells after an answer of the replicas whether the call is lost.
    pub(super) fn evaluate(&mut self, answer: ReplicaAnswer) -> Option<Loss> {
        let recheck_after = match answer {
            ReplicaAnswer::Running => {
                (self.denials, self.was_away) = (0, false);
                // The end of a call whose connection broke may be lost too, so it is checked until it ends.
                self.has_gap.then_some(RECHECK_AFTER)
            }
            ReplicaAnswer::NatsUnavailable => {
                self.was_away = true;
                Some(RECHECK_AFTER)
            }
            ReplicaAnswer::Denied | ReplicaAnswer::Unclear | ReplicaAnswer::Silent if self.was_away => {
                self.was_away = false;
                Some(GRACE_AFTER_OUTAGE)
            }
            ReplicaAnswer::Denied | ReplicaAnswer::Unclear | ReplicaAnswer::Silent if self.has_gap => {
                return Some(Loss::Connection);
            }
            ReplicaAnswer::Silent => Some(SILENCE_RECHECK_AFTER),
            ReplicaAnswer::Unclear => None,
            ReplicaAnswer::Denied => {
                self.denials += 1;
                if self.denials >= self.denials_min() {
                    return Some(Loss::NotHeld);
                }
                Some(RECHECK_AFTER)
            }
        };
        self.next_check_at = recheck_after.map(|after| Instant::now() + after);
        None
    }
}

/// Asks the replicas at `subject` whether one of them works on the call.
pub(super) async fn ask_replicas(bus: &Bus, subject: Subject, call: String) -> ReplicaAnswer {
    let until = Instant::now() + QUERY_MAX;
    let query = async {
        bus.ping().await?;
        let headers = vec![(header::CALL.to_owned(), call)];
        bus.transport().request_many(&subject, headers, Bytes::new()).await
    };
    let mut answers = match timeout_at(until, query).await {
        Ok(Ok(answers)) => answers,
        Ok(Err(BusError::NoResponders { .. })) => return ReplicaAnswer::Silent,
        Ok(Err(_)) | Err(_) => return ReplicaAnswer::NatsUnavailable,
    };
    let (mut denied, mut unclear) = (false, false);
    while let Ok(Some(answer)) = timeout_at(until, answers.next()).await {
        let SubscriptionEvent::Message(answer) = answer else { return ReplicaAnswer::NatsUnavailable };
        match answer.header(header::RUNNING) {
            Some("1") => return ReplicaAnswer::Running,
            Some(_) => denied = true,
            None => unclear = true,
        }
    }
    match (denied, unclear) {
        (_, true) => ReplicaAnswer::Unclear,
        (true, false) => ReplicaAnswer::Denied,
        (false, false) => ReplicaAnswer::Silent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn verdict_follows_from_answers_of_replicas() {
        use Loss::{Connection, NotHeld};
        use ReplicaAnswer::{Denied, NatsUnavailable, Running, Silent, Unclear};
        for (is_repeatable, has_gap, answers, expected) in [
            (true, false, &[Denied, Denied][..], Some(NotHeld)),
            (false, false, &[Denied, Denied], None),
            (false, false, &[Denied, Denied, Denied], Some(NotHeld)),
            (false, false, &[Denied, Denied, Running, Denied], None),
            (false, false, &[Unclear], None),
            (true, false, &[Silent, Denied, Denied], Some(NotHeld)),
            (false, true, &[Silent], Some(Connection)),
            (false, true, &[Unclear], Some(Connection)),
            (false, true, &[Denied], Some(Connection)),
            (false, true, &[Running, Running], None),
            (false, true, &[Running, Denied], Some(Connection)),
            (false, true, &[NatsUnavailable, NatsUnavailable, Unclear], None),
            (false, true, &[NatsUnavailable, Unclear, Unclear], Some(Connection)),
        ] {
            let mut check = ReplicaCheck::new(is_repeatable);
            if has_gap {
                check.record_gap();
            }
            let losses: Vec<Option<Loss>> = answers.iter().map(|answer| check.evaluate(*answer)).collect();
            assert_eq!(losses.last(), Some(&expected), "{is_repeatable} {has_gap} {answers:?}");
        }
    }
}
