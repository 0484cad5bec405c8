//! Circuit breakers: a model that fails again and again is left alone for a while, then asked by one call alone.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::backoff::Backoff;
use contract::model::FailureKind;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::failure::Failure;

/// Failures in a row after which a model is left alone, and over how long: of many calls at once, five may fail by chance.
const FAILURES_MAX: u32 = 5;
const FAILING: Duration = Duration::from_secs(2);
/// How long it is left alone at first; twice as long after each failed probe.
const FIRST: Duration = Duration::from_secs(1);
/// How long it is left alone at most.
const LONGEST: Duration = Duration::from_mins(1);
const BACKOFF: Backoff = Backoff::new(FIRST, LONGEST);
/// How long a call waits for another one that asks whether the model is well again.
const PROBE_MAX: Duration = Duration::from_secs(10);
/// Models that are remembered as failing.
const MODELS_MAX: usize = 1_024;

/// A provider and its name for a model.
type Name = (String, String);

/// Every model that failed lately, as this gateway sees it. A lock since calls share it; it is held for a look only.
#[derive(Debug, Clone, Default)]
pub struct Breakers(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    all: Mutex<BTreeMap<Name, Breaker>>,
    /// A probe is over.
    probed: Notify,
}

/// What is known of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Breaker {
    /// In a row.
    failures: u32,
    /// When the first of them was.
    since: Option<Instant>,
    /// Until when it is left alone.
    open: Option<Instant>,
    /// How often it was.
    opened: u32,
    /// A call asks whether it is well again.
    probing: bool,
    /// How it failed last.
    last: FailureKind,
    /// What was seen of that, without the provider's words: they may be about another tenant's request.
    cause: String,
}

/// A model is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftAlone {
    /// For how long.
    pub wait: Duration,
    /// How it failed last.
    pub last: FailureKind,
    /// What was seen of that.
    pub cause: String,
}

/// Leave to ask a model. Dropped without a word, it tells nothing.
#[derive(Debug)]
pub struct Leave {
    breakers: Breakers,
    name: Name,
    probe: bool,
    answered: bool,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            failures: 0,
            since: None,
            open: None,
            opened: 0,
            probing: false,
            last: FailureKind::Overloaded,
            cause: String::new(),
        }
    }
}

impl Breaker {
    /// Whether a call may ask now, and whether it is the probe; else how long to wait.
    fn admit(&mut self, now: Instant) -> Result<bool, LeftAlone> {
        let Some(until) = self.open else { return Ok(false) };
        let wait = until.saturating_duration_since(now);
        if !wait.is_zero() || self.probing {
            return Err(LeftAlone { wait, last: self.last, cause: self.cause.clone() });
        }
        self.probing = true;
        Ok(true)
    }

    fn failed(&mut self, now: Instant, failure: &Failure, probe: bool) {
        self.last = failure.kind;
        self.cause.clone_from(&failure.cause);
        // What was under way when it was left alone proves nothing new; only a probe does.
        if self.open.is_some() && !probe {
            return;
        }
        self.probing = false;
        self.failures = self.failures.saturating_add(1);
        let since = *self.since.get_or_insert(now);
        if self.failures >= FAILURES_MAX && now >= since + FAILING {
            self.open = Some(now + BACKOFF.pause(self.opened));
            self.opened = self.opened.saturating_add(1);
        }
    }
}

impl Breakers {
    /// Leave to ask; else how long the model is left alone. While another call asks whether it is well again, what comes of
    /// that is waited for.
    pub async fn leave(&self, provider: &str, upstream: &str) -> Result<Leave, LeftAlone> {
        let until = Instant::now() + PROBE_MAX;
        loop {
            let mut probed = pin!(self.0.probed.notified());
            probed.as_mut().enable();
            match self.admit(provider, upstream) {
                Err(alone) if alone.wait.is_zero() => {
                    if timeout_at(until, probed).await.is_err() {
                        return Err(LeftAlone { wait: FIRST, ..alone });
                    }
                }
                told => return told,
            }
        }
    }

    fn admit(&self, provider: &str, upstream: &str) -> Result<Leave, LeftAlone> {
        let name = (provider.to_owned(), upstream.to_owned());
        let probe = self.with(|all| all.get_mut(&name).map_or(Ok(false), |breaker| breaker.admit(Instant::now())))?;
        Ok(Leave { breakers: self.clone(), name, probe, answered: false })
    }

    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<Name, Breaker>) -> T) -> T {
        f(&mut self.0.all.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Leave {
    /// The model begins to answer: it is well, however long it goes on.
    pub fn answers(&mut self) {
        if !std::mem::replace(&mut self.answered, true) {
            self.breakers.with(|all| all.remove(&self.name));
            self.end();
        }
    }

    /// The model answered.
    pub fn succeeded(mut self) {
        self.answers();
    }

    /// The model did not. What says nothing of its health is as if it had not been asked: also the failure of a session that
    /// had less patience than is usual, or one tenant could keep all others from a model.
    pub fn failed(mut self, failure: &Failure) {
        let ill = match failure.kind {
            FailureKind::Overloaded
            | FailureKind::Unreachable
            | FailureKind::TimedOut
            | FailureKind::Truncated
            | FailureKind::ProtocolError => true,
            FailureKind::RateLimited
            | FailureKind::Empty
            | FailureKind::Cancelled
            | FailureKind::ContextLength
            | FailureKind::Quota
            | FailureKind::Auth
            | FailureKind::Refused
            | FailureKind::BadRequest => false,
        };
        if !ill || failure.is_impatience {
            return;
        }
        let (name, probe) = (self.name.clone(), self.probe);
        self.breakers.with(|all| {
            if all.len() < MODELS_MAX || all.contains_key(&name) {
                all.entry(name).or_default().failed(Instant::now(), failure, probe);
            }
        });
        self.end();
    }

    fn end(&mut self) {
        if std::mem::take(&mut self.probe) {
            self.breakers.0.probed.notify_waiters();
        }
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        if self.probe {
            self.breakers.with(|all| all.get_mut(&self.name).map(|breaker| breaker.probing = false));
            self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use super::*;

    const BUSY: FailureKind = FailureKind::Overloaded;

    fn failure(kind: FailureKind) -> Failure {
        Failure::new(kind, "it fails")
    }

    /// Fails so often, over as long as it takes to be left alone for it.
    async fn fail(breakers: &Breakers, times: u32) {
        for _ in 0..times {
            breakers.admit("p", "m").unwrap().failed(&failure(BUSY));
            tokio::time::advance(FAILING / 4).await;
        }
    }

    fn wait(breakers: &Breakers) -> Duration {
        breakers.admit("p", "m").unwrap_err().wait
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_of_which_nothing_but_failures_comes_is_left_alone_then_probed_by_one() {
        let breakers = Breakers::default();
        fail(&breakers, 4).await;
        breakers.admit("p", "m").unwrap().succeeded();
        fail(&breakers, 5).await;
        assert_eq!(wait(&breakers), FIRST.saturating_sub(FAILING / 4));
        assert!(breakers.admit("p", "other").is_ok() && breakers.admit("q", "m").is_ok());
        tokio::time::advance(FIRST).await;
        let probe = breakers.admit("p", "m").unwrap();
        assert_eq!(wait(&breakers), Duration::ZERO);
        probe.failed(&failure(FailureKind::TimedOut));
        assert_eq!(wait(&breakers), 2 * FIRST);
        assert_eq!(breakers.admit("p", "m").unwrap_err().last, FailureKind::TimedOut);
        tokio::time::advance(2 * FIRST).await;
        // A probe that is called off leaves room for another one; so does one that tells nothing of the model's health.
        drop(breakers.admit("p", "m").unwrap());
        breakers.admit("p", "m").unwrap().failed(&failure(FailureKind::RateLimited));
        breakers.admit("p", "m").unwrap().succeeded();
        fail(&breakers, 4).await;
        assert!(breakers.admit("p", "m").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_impatient_sessions_leave_a_model_open_to_all() {
        let breakers = Breakers::default();
        let hasty = Failure { is_impatience: true, ..failure(FailureKind::TimedOut) };
        for _ in 0..20 {
            breakers.admit("p", "m").unwrap().failed(&hasty);
            tokio::time::advance(FAILING).await;
        }
        assert!(breakers.admit("p", "m").is_ok());
        // One that probes leaves room for another probe.
        fail(&breakers, 5).await;
        tokio::time::advance(FIRST).await;
        breakers.admit("p", "m").unwrap().failed(&hasty);
        assert!(breakers.admit("p", "m").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn many_that_fail_at_once_prove_nothing_yet() {
        let breakers = Breakers::default();
        let leaves: Vec<Leave> = (0..100).map(|_| breakers.admit("p", "m").unwrap()).collect();
        for leave in leaves {
            leave.failed(&failure(BUSY));
        }
        assert!(breakers.admit("p", "m").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_while_a_model_is_probed_waits_for_what_comes_of_it() {
        let breakers = Breakers::default();
        fail(&breakers, 5).await;
        tokio::time::advance(FIRST).await;
        let probe = breakers.leave("p", "m").await.unwrap();
        let began = Instant::now();
        let (waited, ()) = tokio::join!(breakers.leave("p", "m"), async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            probe.succeeded();
        });
        assert!(waited.is_ok() && began.elapsed() == Duration::from_secs(3));
        fail(&breakers, 5).await;
        tokio::time::advance(FIRST).await;
        let _probe = breakers.leave("p", "m").await.unwrap();
        let began = Instant::now();
        assert_eq!(breakers.leave("p", "m").await.unwrap_err().wait, FIRST);
        assert_eq!(began.elapsed(), PROBE_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_never_left_alone_for_longer_than_a_minute() {
        let breakers = Breakers::default();
        fail(&breakers, 5).await;
        for _ in 0..40 {
            tokio::time::advance(LONGEST).await;
            breakers.admit("p", "m").unwrap().failed(&failure(BUSY));
        }
        assert_eq!(wait(&breakers), LONGEST);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_under_way_does_not_make_it_worse() {
        let breakers = Breakers::default();
        let late: Vec<Leave> = (0..20).map(|_| breakers.admit("p", "m").unwrap()).collect();
        fail(&breakers, 5).await;
        for leave in late {
            leave.failed(&failure(FailureKind::TimedOut));
        }
        assert_eq!(wait(&breakers), FIRST.saturating_sub(FAILING / 4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_answered_lets_the_others_in_at_once() {
        let breakers = Breakers::default();
        fail(&breakers, 5).await;
        tokio::time::advance(FIRST).await;
        let mut probe = breakers.leave("p", "m").await.unwrap();
        assert_eq!(wait(&breakers), Duration::ZERO);
        probe.answers();
        assert!(breakers.admit("p", "m").is_ok());
    }
}
