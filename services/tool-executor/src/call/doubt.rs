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
const FIRST_AFTER: Duration = Duration::from_secs(2);
/// Pause before it is asked about again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// How long answers of replicas are awaited.
const ASK_MAX: Duration = Duration::from_millis(750);
/// After the connection broke: how long an answer may still take to come, if it comes. The tool is back by then, too.
const GRACE: Duration = Duration::from_secs(5);
/// The same after NATS was away for longer, from when it answers again.
const GRACE_AGAIN: Duration = Duration::from_secs(3);
/// How often in a row replicas say that they do not have a call that may be sent again, before that is believed.
const DENIALS_REPEATABLE: u32 = 2;
/// The same for a call that must not run twice.
const DENIALS: u32 = 3;

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
    Away,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Wait for the answer.
    Wait,
    /// The connection broke, and nobody says that the call is worked on.
    Lost,
    /// No replica has the call.
    Unread,
}

/// What is in doubt about one call that was sent.
#[derive(Debug)]
pub(super) struct Doubt {
    repeatable: bool,
    /// When replicas are asked next; never, where nothing is in doubt.
    asks_at: Option<Instant>,
    /// Whether the connection broke since the last sign of the call.
    broke: bool,
    was_away: bool,
    denials: u32,
}

impl Doubt {
    pub(super) fn new(repeatable: bool) -> Self {
        let asks_at = Some(Instant::now() + FIRST_AFTER);
        Self { repeatable, asks_at, broke: false, was_away: false, denials: 0 }
    }

    pub(super) fn asks_at(&self) -> Option<Instant> {
        self.asks_at
    }

    /// The connection broke: the answer may be lost.
    pub(super) fn broke(&mut self) {
        self.broke = true;
        self.asks_at = Some(Instant::now() + GRACE);
    }

    /// The tool showed that it has the call, and knows where to answer.
    pub(super) fn settle(&mut self) {
        (self.asks_at, self.broke, self.was_away, self.denials) = (None, false, false, 0);
    }

    /// What follows from what replicas say.
    pub(super) fn verdict(&mut self, asked: ReplicaAnswer) -> Verdict {
        let again = |after| Some(Instant::now() + after);
        match asked {
            ReplicaAnswer::Running => {
                (self.denials, self.was_away) = (0, false);
                // A call whose connection broke may end with nobody hearing of it: it is asked about until it ends.
                self.asks_at = again(AGAIN_AFTER).filter(|_| self.broke);
                Verdict::Wait
            }
            ReplicaAnswer::Away => {
                self.was_away = true;
                self.asks_at = again(AGAIN_AFTER);
                Verdict::Wait
            }
            ReplicaAnswer::Denied | ReplicaAnswer::Unclear if self.was_away => {
                self.was_away = false;
                self.asks_at = again(GRACE_AGAIN);
                Verdict::Wait
            }
            ReplicaAnswer::Denied | ReplicaAnswer::Unclear if self.broke => Verdict::Lost,
            ReplicaAnswer::Unclear => {
                self.asks_at = None;
                Verdict::Wait
            }
            ReplicaAnswer::Denied => {
                self.denials += 1;
                self.asks_at = again(AGAIN_AFTER);
                let enough = if self.repeatable { DENIALS_REPEATABLE } else { DENIALS };
                if self.denials < enough { Verdict::Wait } else { Verdict::Unread }
            }
        }
    }
}

/// Asks the replicas at `subject` whether one of them works on the call.
pub(super) async fn ask_replicas(bus: &Bus, subject: Subject, call: String) -> ReplicaAnswer {
    let until = Instant::now() + ASK_MAX;
    let asking = async {
        bus.ping().await?;
        let headers = vec![(header::CALL.to_owned(), call)];
        bus.transport().request_many(&subject, headers, Bytes::new()).await
    };
    let mut answers = match timeout_at(until, asking).await {
        Ok(Ok(answers)) => answers,
        Ok(Err(BusError::NoResponders { .. })) => return ReplicaAnswer::Unclear,
        Ok(Err(_)) | Err(_) => return ReplicaAnswer::Away,
    };
    let (mut denied, mut unclear) = (false, false);
    while let Ok(Some(answer)) = timeout_at(until, answers.next()).await {
        let SubscriptionEvent::Message(answer) = answer else { return ReplicaAnswer::Away };
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
        use ReplicaAnswer::{Away, Denied, Running, Unclear};
        use Verdict::{Lost, Unread, Wait};
        for (repeatable, broke, answers, expected) in [
            (true, false, &[Denied, Denied][..], Unread),
            (false, false, &[Denied, Denied], Wait),
            (false, false, &[Denied, Denied, Denied], Unread),
            (false, false, &[Denied, Denied, Running, Denied], Wait),
            (false, false, &[Unclear], Wait),
            (false, true, &[Unclear], Lost),
            (false, true, &[Denied], Lost),
            (false, true, &[Running, Running], Wait),
            (false, true, &[Running, Denied], Lost),
            (false, true, &[Away, Away, Unclear], Wait),
            (false, true, &[Away, Unclear, Unclear], Lost),
        ] {
            let mut doubt = Doubt::new(repeatable);
            if broke {
                doubt.broke();
            }
            let verdicts: Vec<Verdict> = answers.iter().map(|asked| doubt.verdict(*asked)).collect();
            assert_eq!(verdicts.last(), Some(&expected), "{repeatable} {broke} {answers:?}");
        }
    }
}
