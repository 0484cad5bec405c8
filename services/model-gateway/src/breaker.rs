//! Circuit breakers: a model that fails again and again is left alone for a while, then asked by one call alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::model::FailureKind;
use tokio::time::Instant;

use crate::failure::Failure;

/// Failures in a row after which a model is left alone.
const FAILURES_MAX: u32 = 5;
/// How long it is left alone at first; twice as long after each failed probe.
const FIRST: Duration = Duration::from_secs(1);
/// How long it is left alone at most.
const LONGEST: Duration = Duration::from_mins(1);
/// When to come again while a probe is under way.
const PROBED: Duration = Duration::from_millis(500);
/// Models that are remembered as failing.
const MODELS_MAX: usize = 1_024;

/// A provider and its name for a model.
type Name = (String, String);

/// Every model that failed lately, as this gateway sees it. A lock since calls share it; it is held for a look only.
#[derive(Debug, Clone, Default)]
pub struct Breakers(Arc<Mutex<BTreeMap<Name, Breaker>>>);

/// What is known of one model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Breaker {
    /// In a row.
    failures: u32,
    /// When it was last left alone, and until when.
    open: Option<Instant>,
    /// A call asks whether it is well again.
    probing: bool,
    /// How it failed last.
    last: Option<Failure>,
}

/// A model is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftAlone {
    /// For how long.
    pub wait: Duration,
    /// How it failed last.
    pub last: Option<Failure>,
}

/// Leave to ask a model. Dropped without a word, it tells nothing.
#[derive(Debug)]
pub struct Leave {
    breakers: Breakers,
    name: Name,
    probe: bool,
}

impl Breaker {
    /// Whether a call may ask now, and whether it is the probe; else how long to wait.
    fn admit(&mut self, now: Instant) -> Result<bool, LeftAlone> {
        let Some(until) = self.open else { return Ok(false) };
        let alone = |wait| Err(LeftAlone { wait, last: self.last.clone() });
        if now < until {
            return alone(until - now);
        }
        if self.probing {
            return alone(PROBED);
        }
        self.probing = true;
        Ok(true)
    }

    fn failed(&mut self, now: Instant, failure: &Failure) {
        self.probing = false;
        self.last = Some(failure.clone());
        self.failures = self.failures.saturating_add(1);
        if self.failures >= FAILURES_MAX {
            let doublings = (self.failures - FAILURES_MAX).min(8);
            self.open = Some(now + (FIRST * 2_u32.pow(doublings)).min(LONGEST));
        }
    }
}

impl Breakers {
    /// Leave to ask; else how long the model is left alone.
    pub fn admit(&self, provider: &str, upstream: &str) -> Result<Leave, LeftAlone> {
        let name = (provider.to_owned(), upstream.to_owned());
        let probe = self.with(|all| all.get_mut(&name).map_or(Ok(false), |breaker| breaker.admit(Instant::now())))?;
        Ok(Leave { breakers: self.clone(), name, probe })
    }

    fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<Name, Breaker>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Leave {
    /// The model answered.
    pub fn succeeded(mut self) {
        self.probe = false;
        self.breakers.with(|all| all.remove(&self.name));
    }

    /// The model did not. What says nothing of its health is as if it had not been asked.
    pub fn failed(mut self, failure: &Failure) {
        let ill = match failure.kind {
            FailureKind::Overloaded
            | FailureKind::Unreachable
            | FailureKind::Hung
            | FailureKind::Truncated
            | FailureKind::Garbage => true,
            FailureKind::RateLimited
            | FailureKind::Empty
            | FailureKind::Cancelled
            | FailureKind::ContextLength
            | FailureKind::Quota
            | FailureKind::Auth
            | FailureKind::Refused
            | FailureKind::BadRequest => false,
        };
        if !ill {
            return;
        }
        self.probe = false;
        let name = self.name.clone();
        self.breakers.with(|all| {
            if all.len() < MODELS_MAX || all.contains_key(&name) {
                all.entry(name).or_default().failed(Instant::now(), failure);
            }
        });
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        if self.probe {
            self.breakers.with(|all| all.get_mut(&self.name).map(|breaker| breaker.probing = false));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

    use super::*;

    fn fail(breakers: &Breakers, times: u32) {
        for _ in 0..times {
            breakers.admit("p", "m").unwrap().failed(&Failure::new(FailureKind::Overloaded, "busy"));
        }
    }

    fn wait(breakers: &Breakers) -> Duration {
        breakers.admit("p", "m").unwrap_err().wait
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_that_fails_again_and_again_is_left_alone_then_probed_by_one() {
        let breakers = Breakers::default();
        fail(&breakers, 4);
        breakers.admit("p", "m").unwrap().succeeded();
        fail(&breakers, 5);
        assert_eq!(wait(&breakers), FIRST);
        assert!(breakers.admit("p", "other").is_ok() && breakers.admit("q", "m").is_ok());
        tokio::time::advance(FIRST).await;
        let probe = breakers.admit("p", "m").unwrap();
        assert_eq!(wait(&breakers), PROBED);
        probe.failed(&Failure::new(FailureKind::Hung, "silence"));
        assert_eq!(breakers.admit("p", "m").unwrap_err().last.unwrap().kind, FailureKind::Hung);
        assert_eq!(wait(&breakers), 2 * FIRST);
        tokio::time::advance(2 * FIRST).await;
        // A probe that is called off leaves room for another one; so does one that tells nothing of the model's health.
        drop(breakers.admit("p", "m").unwrap());
        breakers.admit("p", "m").unwrap().failed(&Failure::new(FailureKind::RateLimited, "slow"));
        breakers.admit("p", "m").unwrap().succeeded();
        fail(&breakers, 4);
        assert!(breakers.admit("p", "m").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_never_left_alone_for_longer_than_a_minute() {
        let breakers = Breakers::default();
        fail(&breakers, 5);
        for _ in 0..40 {
            tokio::time::advance(LONGEST).await;
            fail(&breakers, 1);
        }
        assert_eq!(wait(&breakers), LONGEST);
    }
}
