//! Circuit breakers: a model that fails again and again is left alone for a while, then asked by one call alone.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::backoff::Backoff;
use contract::model::FailureKind;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::failure::CallFailure;

/// Failures in a row after which a model is left alone, and over how long: of many calls at once, five may fail by chance.
const FAILURES_MAX: u32 = 5;
const FAILING_MIN: Duration = Duration::from_secs(2);
/// How long it is left alone at first; twice as long after each failed probe.
const OPEN_FIRST: Duration = Duration::from_secs(1);
/// How long it is left alone at most.
const OPEN_MAX: Duration = Duration::from_mins(1);
const BACKOFF: Backoff = Backoff::new(OPEN_FIRST, OPEN_MAX);
/// How long a call waits for another one that asks whether the model is well again.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Models that are remembered as failing.
const MODELS_MAX: usize = 1_024;

/// A provider and its name for a model.
type ModelName = (String, String);

/// Every model that failed lately, as this gateway sees it. A lock since calls share it; it is held for a look only.
#[derive(Debug, Clone, Default)]
pub(crate) struct Breakers(Arc<BreakerMap>);

#[derive(Debug, Default)]
struct BreakerMap {
    breakers: Mutex<BTreeMap<ModelName, Breaker>>,
    /// A probe is over.
    probed: Notify,
}

/// What is known of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Breaker {
    /// In a row.
    failures: u32,
    /// When the first of them was.
    failing_since: Option<Instant>,
    /// Until when it is left alone.
    open_until: Option<Instant>,
    /// How often it was.
    times_opened: u32,
    /// A call asks whether it is well again.
    is_probing: bool,
    /// How it failed last.
    last_kind: FailureKind,
    /// What was seen of that, without the provider's words: they may be about another tenant's request.
    last_cause: String,
}

/// A model is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CircuitOpen {
    /// For how long.
    pub(crate) wait: Duration,
    /// How it failed last.
    pub(crate) last_kind: FailureKind,
    /// What was seen of that.
    pub(crate) last_cause: String,
}

/// Leave to ask a model. Dropped without a word, it tells nothing.
#[derive(Debug)]
pub(crate) struct Permit {
    breakers: Breakers,
    name: ModelName,
    probe: bool,
    has_succeeded: bool,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            failures: 0,
            failing_since: None,
            open_until: None,
            times_opened: 0,
            is_probing: false,
            last_kind: FailureKind::Overloaded,
            last_cause: String::new(),
        }
    }
}

impl Breaker {
    /// Whether a call may ask now, and whether it is the probe; else how long to wait.
    fn admit(&mut self, now: Instant) -> Result<bool, CircuitOpen> {
        let Some(until) = self.open_until else { return Ok(false) };
        let wait = until.saturating_duration_since(now);
        if !wait.is_zero() || self.is_probing {
            return Err(CircuitOpen { wait, last_kind: self.last_kind, last_cause: self.last_cause.clone() });
        }
        self.is_probing = true;
        Ok(true)
    }

    fn record_failure(&mut self, now: Instant, failure: &CallFailure, probe: bool) {
        self.last_kind = failure.kind;
        self.last_cause.clone_from(&failure.cause);
        // What was under way when it was left alone proves nothing new; only a probe does.
        if self.open_until.is_some() && !probe {
            return;
        }
        self.is_probing = false;
        self.failures = self.failures.saturating_add(1);
        let failing_since = *self.failing_since.get_or_insert(now);
        if self.failures >= FAILURES_MAX && now >= failing_since + FAILING_MIN {
            self.open_until = Some(now + BACKOFF.pause(self.times_opened));
            self.times_opened = self.times_opened.saturating_add(1);
        }
    }
}

impl Breakers {
    /// Leave to ask; else how long the model is left alone. While another call asks whether it is well again, what comes of
    /// that is waited for.
    pub(crate) async fn acquire(&self, provider: &str, upstream: &str) -> Result<Permit, CircuitOpen> {
        let until = Instant::now() + PROBE_WAIT_MAX;
        loop {
            let mut probed = pin!(self.0.probed.notified());
            probed.as_mut().enable();
            match self.admit(provider, upstream) {
                Err(open) if open.wait.is_zero() => {
                    if timeout_at(until, probed).await.is_err() {
                        return Err(CircuitOpen { wait: OPEN_FIRST, ..open });
                    }
                }
                admitted => return admitted,
            }
        }
    }

    fn admit(&self, provider: &str, upstream: &str) -> Result<Permit, CircuitOpen> {
        let name = (provider.to_owned(), upstream.to_owned());
        let probe =
            self.lock(|breakers| breakers.get_mut(&name).map_or(Ok(false), |breaker| breaker.admit(Instant::now())))?;
        Ok(Permit { breakers: self.clone(), name, probe, has_succeeded: false })
    }

    fn lock<T>(&self, f: impl FnOnce(&mut BTreeMap<ModelName, Breaker>) -> T) -> T {
        f(&mut self.0.breakers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Permit {
    /// The model begins to answer: it is well, however long it goes on.
    pub(crate) fn record_success(&mut self) {
        if !std::mem::replace(&mut self.has_succeeded, true) {
            self.breakers.lock(|breakers| breakers.remove(&self.name));
            self.end_probe();
        }
    }

    /// The model did not. What says nothing of its health is as if it had not been asked: also the failure of a session that
    /// had less patience than is usual, or one tenant could keep all others from a model.
    pub(crate) fn record_failure(mut self, failure: &CallFailure) {
        let is_model_failure = match failure.kind {
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
        if !is_model_failure || failure.is_session_timeout {
            return;
        }
        let (name, probe) = (self.name.clone(), self.probe);
        self.breakers.lock(|breakers| {
            if breakers.len() < MODELS_MAX || breakers.contains_key(&name) {
                breakers.entry(name).or_default().record_failure(Instant::now(), failure, probe);
            }
        });
        self.end_probe();
    }

    fn end_probe(&mut self) {
        if std::mem::take(&mut self.probe) {
            self.breakers.0.probed.notify_waiters();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.probe {
            self.breakers.lock(|breakers| breakers.get_mut(&self.name).map(|breaker| breaker.is_probing = false));
            self.end_probe();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use super::*;

    const BUSY: FailureKind = FailureKind::Overloaded;

    fn failure(kind: FailureKind) -> CallFailure {
        CallFailure::new(kind, "it fails")
    }

    /// Fails so often, over as long as it takes to be left alone for it.
    async fn fail(breakers: &Breakers, times: u32) {
        for _ in 0..times {
            breakers.admit("p", "m").unwrap().record_failure(&failure(BUSY));
            tokio::time::advance(FAILING_MIN / 4).await;
        }
    }

    fn wait(breakers: &Breakers) -> Duration {
        breakers.admit("p", "m").unwrap_err().wait
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_of_which_nothing_but_failures_comes_is_left_alone_then_probed_by_one() {
        let breakers = Breakers::default();
        fail(&breakers, 4).await;
        breakers.admit("p", "m").unwrap().record_success();
        fail(&breakers, 5).await;
        assert_eq!(wait(&breakers), OPEN_FIRST.saturating_sub(FAILING_MIN / 4));
        assert!(breakers.admit("p", "other").is_ok() && breakers.admit("q", "m").is_ok());
        tokio::time::advance(OPEN_FIRST).await;
        let probe = breakers.admit("p", "m").unwrap();
        assert_eq!(wait(&breakers), Duration::ZERO);
        probe.record_failure(&failure(FailureKind::TimedOut));
        assert_eq!(wait(&breakers), 2 * OPEN_FIRST);
        assert_eq!(breakers.admit("p", "m").unwrap_err().last_kind, FailureKind::TimedOut);
        tokio::time::advance(2 * OPEN_FIRST).await;
        // A probe that is called off leaves room for another one; so does one that tells nothing of the model's health.
        drop(breakers.admit("p", "m").unwrap());
        breakers.admit("p", "m").unwrap().record_failure(&failure(FailureKind::RateLimited));
        breakers.admit("p", "m").unwrap().record_success();
        fail(&breakers, 4).await;
        assert!(breakers.admit("p", "m").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn failures_of_impatient_sessions_leave_a_model_open_to_all() {
        let breakers = Breakers::default();
        let session_timeout = CallFailure { is_session_timeout: true, ..failure(FailureKind::TimedOut) };
        for _ in 0..20 {
            breakers.admit("p", "m").unwrap().record_failure(&session_timeout);
            tokio::time::advance(FAILING_MIN).await;
        }
        assert!(breakers.admit("p", "m").is_ok());
        // One that probes leaves room for another probe.
        fail(&breakers, 5).await;
        tokio::time::advance(OPEN_FIRST).await;
        breakers.admit("p", "m").unwrap().record_failure(&session_timeout);
        assert!(breakers.admit("p", "m").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn many_that_fail_at_once_prove_nothing_yet() {
        let breakers = Breakers::default();
        let permits: Vec<Permit> = (0..100).map(|_| breakers.admit("p", "m").unwrap()).collect();
        for permit in permits {
            permit.record_failure(&failure(BUSY));
        }
        assert!(breakers.admit("p", "m").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_while_a_model_is_probed_waits_for_what_comes_of_it() {
        let breakers = Breakers::default();
        fail(&breakers, 5).await;
        tokio::time::advance(OPEN_FIRST).await;
        let mut probe = breakers.acquire("p", "m").await.unwrap();
        let began = Instant::now();
        let (waited, ()) = tokio::join!(breakers.acquire("p", "m"), async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            probe.record_success();
        });
        assert!(waited.is_ok() && began.elapsed() == Duration::from_secs(3));
        fail(&breakers, 5).await;
        tokio::time::advance(OPEN_FIRST).await;
        let _probe = breakers.acquire("p", "m").await.unwrap();
        let began = Instant::now();
        assert_eq!(breakers.acquire("p", "m").await.unwrap_err().wait, OPEN_FIRST);
        assert_eq!(began.elapsed(), PROBE_WAIT_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_never_left_alone_for_longer_than_a_minute() {
        let breakers = Breakers::default();
        fail(&breakers, 5).await;
        for _ in 0..40 {
            tokio::time::advance(OPEN_MAX).await;
            breakers.admit("p", "m").unwrap().record_failure(&failure(BUSY));
        }
        assert_eq!(wait(&breakers), OPEN_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_under_way_does_not_make_it_worse() {
        let breakers = Breakers::default();
        let late: Vec<Permit> = (0..20).map(|_| breakers.admit("p", "m").unwrap()).collect();
        fail(&breakers, 5).await;
        for permit in late {
            permit.record_failure(&failure(FailureKind::TimedOut));
        }
        assert_eq!(wait(&breakers), OPEN_FIRST.saturating_sub(FAILING_MIN / 4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_answered_lets_the_others_in_at_once() {
        let breakers = Breakers::default();
        fail(&breakers, 5).await;
        tokio::time::advance(OPEN_FIRST).await;
        let mut probe = breakers.acquire("p", "m").await.unwrap();
        assert_eq!(wait(&breakers), Duration::ZERO);
        probe.record_success();
        assert!(breakers.admit("p", "m").is_ok());
    }
}
