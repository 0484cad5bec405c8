//! Circuit breakers: after repeated failures, a model gets no requests for a while, and then one probe.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::Timestamp;
use contract::backoff::Backoff;
use contract::fleet::ModelHealth;
use contract::model::FailureKind;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::failure::CallFailure;

/// Consecutive failures that open a circuit, and the time that they must span: of many calls at once, five may fail by
/// chance.
const FAILURES_MAX: u32 = 5;
const FAILING_MIN: Duration = Duration::from_secs(2);
/// Time for which a circuit is open at first; it doubles after each failed probe.
const OPEN_FIRST: Duration = Duration::from_secs(1);
/// Longest time that a circuit is open.
const OPEN_MAX: Duration = Duration::from_mins(1);
const BACKOFF: Backoff = Backoff::new(OPEN_FIRST, OPEN_MAX);
/// Longest wait of a call for the result of another call's probe.
const PROBE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Maximum failing models whose state is stored.
const MODELS_MAX: usize = 1_024;

/// Names of a provider and of the model there.
type ModelName = (String, String);

/// Circuit breakers of the models that failed lately, as this gateway sees them. Calls share them through a lock.
#[derive(Debug, Clone, Default)]
pub(crate) struct Breakers(Arc<BreakerMap>);

#[derive(Debug, Default)]
struct BreakerMap {
    breakers: Mutex<BTreeMap<ModelName, Breaker>>,
    /// Notifies calls that wait for the end of a probe.
    probed: Notify,
}

/// State of the circuit of one model.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Breaker {
    failures: u32,
    /// Time of the first of these failures.
    failing_since: Option<Instant>,
    /// End of the time in which the circuit is open.
    open_until: Option<Instant>,
    /// Number of times that the circuit was opened since the last success.
    times_opened: u32,
    /// Whether a call probes the model now.
    is_probing: bool,
    last_kind: FailureKind,
    /// Cause of the last failure without the message of the provider, which may be about the request of another tenant.
    last_cause: String,
}

/// The circuit of a model is open: it gets no requests now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CircuitOpen {
    pub(crate) wait: Duration,
    pub(crate) last_kind: FailureKind,
    pub(crate) last_cause: String,
}

/// The right to send one request to a model. A permit that is dropped without a record changes nothing.
#[derive(Debug)]
pub(crate) struct Permit {
    breakers: Breakers,
    name: ModelName,
    is_probe: bool,
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
    /// Admits a request; `true` if it is the probe.
    fn admit(&mut self, now: Instant) -> Result<bool, CircuitOpen> {
        let Some(until) = self.open_until else { return Ok(false) };
        let wait = until.saturating_duration_since(now);
        if !wait.is_zero() || self.is_probing {
            return Err(CircuitOpen { wait, last_kind: self.last_kind, last_cause: self.last_cause.clone() });
        }
        self.is_probing = true;
        Ok(true)
    }

    fn record_failure(&mut self, now: Instant, failure: &CallFailure, is_probe: bool) {
        self.last_kind = failure.kind;
        self.last_cause.clone_from(&failure.cause);
        // A request that was sent before the circuit opened is no evidence of the state now; only a probe is.
        if self.open_until.is_some() && !is_probe {
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

    fn is_open(&self) -> bool {
        self.open_until.is_some()
    }
}

impl Breakers {
    /// Acquires a permit, or returns how long the circuit is open. While another call probes the model, this waits for
    /// the end of the probe.
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
        let is_probe =
            self.lock(|breakers| breakers.get_mut(&name).map_or(Ok(false), |breaker| breaker.admit(Instant::now())))?;
        Ok(Permit { breakers: self.clone(), name, is_probe, has_succeeded: false })
    }

    /// The models that failed since they last succeeded. `now` is the time of the caller's clock.
    pub(crate) fn failing(&self, now: Timestamp) -> Vec<ModelHealth> {
        let health = |((provider, model), breaker): (&ModelName, &Breaker)| {
            let left = breaker.open_until.map(|until| until.saturating_duration_since(Instant::now()));
            ModelHealth {
                provider: provider.clone(),
                model: model.clone(),
                failures: breaker.failures,
                last_failure: breaker.last_kind.code(),
                open_until: left.map(|left| now.after(left)),
            }
        };
        self.lock(|breakers| breakers.iter().map(health).collect())
    }

    fn lock<T>(&self, f: impl FnOnce(&mut BTreeMap<ModelName, Breaker>) -> T) -> T {
        f(&mut self.0.breakers.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Permit {
    /// Records that the model answers, and closes its circuit, even while the reply still grows.
    pub(crate) fn record_success(&mut self) {
        if !std::mem::replace(&mut self.has_succeeded, true) {
            if self.breakers.lock(|breakers| breakers.remove(&self.name)).is_some() {
                telemetry::metric::breaker(&self.name.0, &self.name.1, false);
            }
            self.end_probe();
        }
    }

    /// Records a failure. Failures that do not come from the health of the model do not count. Neither do timeouts that
    /// a session set below the default: otherwise one tenant could block a model for all others.
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
        let (name, is_probe) = (self.name.clone(), self.is_probe);
        self.breakers.lock(|breakers| {
            if breakers.len() < MODELS_MAX || breakers.contains_key(&name) {
                let breaker = breakers.entry(name.clone()).or_default();
                breaker.record_failure(Instant::now(), failure, is_probe);
                if breaker.is_open() {
                    telemetry::metric::breaker(&name.0, &name.1, true);
                }
            }
        });
        self.end_probe();
    }

    fn end_probe(&mut self) {
        if std::mem::take(&mut self.is_probe) {
            self.breakers.0.probed.notify_waiters();
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.is_probe {
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

    /// Records so many failures, over a time that opens the circuit.
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
    async fn model_failing_repeatedly_circuit_opens_then_admits_one_probe() {
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
        // A probe that is cancelled makes room for another one; so does one that shows nothing about the health of the
        // model.
        drop(breakers.admit("p", "m").unwrap());
        breakers.admit("p", "m").unwrap().record_failure(&failure(FailureKind::RateLimited));
        breakers.admit("p", "m").unwrap().record_success();
        fail(&breakers, 4).await;
        assert!(breakers.admit("p", "m").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn failing_model_is_reported_until_it_succeeds() {
        let breakers = Breakers::default();
        let now = Timestamp::from_millis(1_000_000);
        assert_eq!(breakers.failing(now), []);
        fail(&breakers, 2).await;
        let health = |failures, open_until| ModelHealth {
            provider: "p".to_owned(),
            model: "m".to_owned(),
            failures,
            last_failure: BUSY.code(),
            open_until,
        };
        assert_eq!(breakers.failing(now), [health(2, None)]);
        fail(&breakers, 3).await;
        let left = OPEN_FIRST.saturating_sub(FAILING_MIN / 4);
        assert_eq!(breakers.failing(now), [health(5, Some(now.after(left)))]);
        tokio::time::advance(OPEN_FIRST).await;
        breakers.admit("p", "m").unwrap().record_success();
        assert_eq!(breakers.failing(now), []);
    }

    #[tokio::test(start_paused = true)]
    async fn timeouts_below_the_default_circuit_stays_closed() {
        let breakers = Breakers::default();
        let session_timeout = CallFailure { is_session_timeout: true, ..failure(FailureKind::TimedOut) };
        for _ in 0..20 {
            breakers.admit("p", "m").unwrap().record_failure(&session_timeout);
            tokio::time::advance(FAILING_MIN).await;
        }
        assert!(breakers.admit("p", "m").is_ok());
        // A probe with such a timeout makes room for another probe.
        fail(&breakers, 5).await;
        tokio::time::advance(OPEN_FIRST).await;
        breakers.admit("p", "m").unwrap().record_failure(&session_timeout);
        assert!(breakers.admit("p", "m").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn many_failures_at_once_circuit_stays_closed() {
        let breakers = Breakers::default();
        let permits: Vec<Permit> = (0..100).map(|_| breakers.admit("p", "m").unwrap()).collect();
        for permit in permits {
            permit.record_failure(&failure(BUSY));
        }
        assert!(breakers.admit("p", "m").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn call_during_a_probe_waits_for_its_result() {
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
    async fn circuit_opened_repeatedly_opens_for_at_most_a_minute() {
        let breakers = Breakers::default();
        fail(&breakers, 5).await;
        for _ in 0..40 {
            tokio::time::advance(OPEN_MAX).await;
            breakers.admit("p", "m").unwrap().record_failure(&failure(BUSY));
        }
        assert_eq!(wait(&breakers), OPEN_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn failure_of_an_earlier_request_does_not_extend_the_open_time() {
        let breakers = Breakers::default();
        let late: Vec<Permit> = (0..20).map(|_| breakers.admit("p", "m").unwrap()).collect();
        fail(&breakers, 5).await;
        for permit in late {
            permit.record_failure(&failure(FailureKind::TimedOut));
        }
        assert_eq!(wait(&breakers), OPEN_FIRST.saturating_sub(FAILING_MIN / 4));
    }

    #[tokio::test(start_paused = true)]
    async fn probe_answered_others_are_admitted_at_once() {
        let breakers = Breakers::default();
        fail(&breakers, 5).await;
        tokio::time::advance(OPEN_FIRST).await;
        let mut probe = breakers.acquire("p", "m").await.unwrap();
        assert_eq!(wait(&breakers), Duration::ZERO);
        probe.record_success();
        assert!(breakers.admit("p", "m").is_ok());
    }
}
