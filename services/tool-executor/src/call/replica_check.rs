//! Whether anybody still has a call: its request may have been lost on its way, and its answer when a connection broke.
//!
//! Replicas that know the header `Ailoop-Running` are asked. Where none of them does, only a broken connection is a reason
//! not to wait until the deadline.

use std::time::Duration;

use bus::{Bus, BusError, SubscriptionEvent};
use bytes::Bytes;
use contract::subject::Subject;
use contract::tool::header;
use futures::StreamExt;
use tokio::time::{Instant, timeout_at};

/// When a silent call is asked about first: a tool of the SDK has said by then that it works on it.
const FIRST_CHECK_AFTER: Duration = Duration::from_secs(2);
/// Pause before it is asked about again.
const RECHECK_AFTER: Duration = Duration::from_secs(2);
/// How long answers of replicas are awaited.
const QUERY_MAX: Duration = Duration::from_millis(750);
/// After the connection broke: how long an answer may still take to come, if it comes. The tool is back by then, too.
const GRACE: Duration = Duration::from_secs(5);
/// The same after NATS was away for longer, from when it answers again.
const GRACE_AFTER_OUTAGE: Duration = Duration::from_secs(3);
/// How often in a row replicas say that they do not have a call that may be sent again, before that is believed.
const DENIALS_REPEATABLE_MIN: u32 = 2;
/// The same for a call that must not run twice.
const DENIALS_MIN: u32 = 3;

/// What replicas say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplicaAnswer {
    /// One of them works on the call.
    Running,
    /// All that answered say that they do not.
    Denied,
    /// Nobody answered, or one does not say what it works on.
    Unclear,
    /// NATS did not answer.
    NatsUnavailable,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckVerdict {
    /// Wait for the answer.
    Wait,
    /// The connection broke, and nobody says that the call is worked on.
    Lost,
    /// No replica has the call.
    NotHeld,
}

/// What is in doubt about one call that was sent.
#[derive(Debug)]
pub(super) struct ReplicaCheck {
    is_repeatable: bool,
    /// When replicas are asked next; never, where nothing is in doubt.
    next_check_at: Option<Instant>,
    /// Whether the connection broke since the last sign of the call.
    has_gap: bool,
    was_away: bool,
    denials: u32,
}

impl ReplicaCheck {
    pub(super) fn new(is_repeatable: bool) -> Self {
        let next_check_at = Some(Instant::now() + FIRST_CHECK_AFTER);
        Self { is_repeatable, next_check_at, has_gap: false, was_away: false, denials: 0 }
    }

    pub(super) fn next_check_at(&self) -> Option<Instant> {
        self.next_check_at
    }

    /// The connection broke: the answer may be lost.
    pub(super) fn record_gap(&mut self) {
        self.has_gap = true;
        self.next_check_at = Some(Instant::now() + GRACE);
    }

    /// The tool showed that it has the call, and knows where to answer.
    pub(super) fn clear(&mut self) {
        (self.next_check_at, self.has_gap, self.was_away, self.denials) = (None, false, false, 0);
    }

    /// What follows from what replicas say.
    pub(super) fn evaluate(&mut self, answer: ReplicaAnswer) -> CheckVerdict {
        let in_future = |after| Some(Instant::now() + after);
        match answer {
            ReplicaAnswer::Running => {
                (self.denials, self.was_away) = (0, false);
                // A call whose connection broke may end with nobody hearing of it: it is asked about until it ends.
                self.next_check_at = in_future(RECHECK_AFTER).filter(|_| self.has_gap);
                CheckVerdict::Wait
            }
            ReplicaAnswer::NatsUnavailable => {
                self.was_away = true;
                self.next_check_at = in_future(RECHECK_AFTER);
                CheckVerdict::Wait
            }
            ReplicaAnswer::Denied | ReplicaAnswer::Unclear if self.was_away => {
                self.was_away = false;
                self.next_check_at = in_future(GRACE_AFTER_OUTAGE);
                CheckVerdict::Wait
            }
            ReplicaAnswer::Denied | ReplicaAnswer::Unclear if self.has_gap => CheckVerdict::Lost,
            ReplicaAnswer::Unclear => {
                self.next_check_at = None;
                CheckVerdict::Wait
            }
            ReplicaAnswer::Denied => {
                self.denials += 1;
                self.next_check_at = in_future(RECHECK_AFTER);
                let enough = if self.is_repeatable { DENIALS_REPEATABLE_MIN } else { DENIALS_MIN };
                if self.denials < enough { CheckVerdict::Wait } else { CheckVerdict::NotHeld }
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
        Ok(Err(BusError::NoResponders { .. })) => return ReplicaAnswer::Unclear,
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
    if denied && !unclear { ReplicaAnswer::Denied } else { ReplicaAnswer::Unclear }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn verdict_follows_from_what_replicas_say() {
        use CheckVerdict::{Lost, NotHeld, Wait};
        use ReplicaAnswer::{Denied, NatsUnavailable, Running, Unclear};
        for (is_repeatable, has_gap, answers, expected) in [
            (true, false, &[Denied, Denied][..], NotHeld),
            (false, false, &[Denied, Denied], Wait),
            (false, false, &[Denied, Denied, Denied], NotHeld),
            (false, false, &[Denied, Denied, Running, Denied], Wait),
            (false, false, &[Unclear], Wait),
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
