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

/// When a silent call is checked first: by then a tool of the library has sent its receipt.
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

/// What the replicas of a tool answer about a call.
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

/// What the dispatch does after a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckVerdict {
    Wait,
    /// The connection broke, and no replica works on the call.
    Lost,
    NotHeld,
    /// The process that worked on the call is gone.
    ReplicaGone,
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

    /// Decides what to do after a ping of the replica that has named itself.
    pub(super) fn evaluate_ping(&mut self, state: ReplicaState) -> CheckVerdict {
        match state {
            ReplicaState::There => {
                self.ended_pings = 0;
                CheckVerdict::Wait
            }
            ReplicaState::Gone => CheckVerdict::ReplicaGone,
            ReplicaState::Ended => {
                self.ended_pings += 1;
                if self.ended_pings < self.denials_min() { CheckVerdict::Wait } else { CheckVerdict::NotHeld }
            }
        }
    }

    fn denials_min(&self) -> u32 {
        if self.is_repeatable { DENIALS_REPEATABLE_MIN } else { DENIALS_MIN }
    }

    /// Decides what to do after an answer of the replicas.
    pub(super) fn evaluate(&mut self, answer: ReplicaAnswer) -> CheckVerdict {
        let in_future = |after| Some(Instant::now() + after);
        match answer {
            ReplicaAnswer::Running => {
                (self.denials, self.was_away) = (0, false);
                // The end of a call whose connection broke may be lost too, so it is checked until it ends.
                self.next_check_at = in_future(RECHECK_AFTER).filter(|_| self.has_gap);
                CheckVerdict::Wait
            }
            ReplicaAnswer::NatsUnavailable => {
                self.was_away = true;
                self.next_check_at = in_future(RECHECK_AFTER);
                CheckVerdict::Wait
            }
            ReplicaAnswer::Denied | ReplicaAnswer::Unclear | ReplicaAnswer::Silent if self.was_away => {
                self.was_away = false;
                self.next_check_at = in_future(GRACE_AFTER_OUTAGE);
                CheckVerdict::Wait
            }
            ReplicaAnswer::Denied | ReplicaAnswer::Unclear | ReplicaAnswer::Silent if self.has_gap => {
                CheckVerdict::Lost
            }
            ReplicaAnswer::Silent => {
                self.next_check_at = in_future(SILENCE_RECHECK_AFTER);
                CheckVerdict::Wait
            }
            ReplicaAnswer::Unclear => {
                self.next_check_at = None;
                CheckVerdict::Wait
            }
            ReplicaAnswer::Denied => {
                self.denials += 1;
                self.next_check_at = in_future(RECHECK_AFTER);
                if self.denials < self.denials_min() { CheckVerdict::Wait } else { CheckVerdict::NotHeld }
            }
        }
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
        use CheckVerdict::{Lost, NotHeld, Wait};
        use ReplicaAnswer::{Denied, NatsUnavailable, Running, Silent, Unclear};
        for (is_repeatable, has_gap, answers, expected) in [
            (true, false, &[Denied, Denied][..], NotHeld),
            (false, false, &[Denied, Denied], Wait),
            (false, false, &[Denied, Denied, Denied], NotHeld),
            (false, false, &[Denied, Denied, Running, Denied], Wait),
            (false, false, &[Unclear], Wait),
            (true, false, &[Silent, Denied, Denied], NotHeld),
            (false, true, &[Silent], Lost),
            (false, true, &[Unclear], Lost),
            (false, true, &[Denied], Lost),
            (false, true, &[Running, Running], Wait),
            (false, true, &[Running, Denied], Lost),
            (false, true, &[NatsUnavailable, NatsUnavailable, Unclear], Wait),
            (false, true, &[NatsUnavailable, Unclear, Unclear], Lost),
        ] {
            let mut check = ReplicaCheck::new(is_repeatable);
            if has_gap {
                check.record_gap();
            }
            let verdicts: Vec<CheckVerdict> = answers.iter().map(|answer| check.evaluate(*answer)).collect();
            assert_eq!(verdicts.last(), Some(&expected), "{is_repeatable} {has_gap} {answers:?}");
        }
    }
}
