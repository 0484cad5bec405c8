//! Decides which route a call tries next, and when. A call is only tried again while viewers have seen nothing of its
//! reply, since that cannot be taken back. After that, the orchestrator opens a new attempt.

use std::time::Duration;

use contract::backoff::Backoff;
use contract::model::FailureKind;

use crate::failure::CallFailure;

/// Maximum requests of one call to all providers.
const TRIES_MAX: u32 = 4;
/// Longest wait of a call in a gateway, where it occupies a permit. For a longer wait the orchestrator sets a timer.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);
/// Maximum sum of the waits of one call.
const WAITS_MAX: Duration = Duration::from_secs(30);
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(5));

/// Next action after a failed try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// Send the next request to this route, after a wait.
    TryRoute {
        /// Index of the route.
        route: usize,
        after: Duration,
    },
    /// Fail the call with the failure of the route that is ready first, and with the time until then.
    GiveUp(CallFailure),
}

/// State of the retries of one call. Times are relative to the start of the call.
#[derive(Debug, Clone)]
pub(crate) struct RetryPlan {
    /// Time at which each route is ready, the preferred route first; `None` for a route that is not tried again.
    ready_at: Vec<Option<Duration>>,
    /// Last failure of each route that may be tried again.
    failures: Vec<Option<CallFailure>>,
    tries: u32,
    waited: Duration,
    /// From 0 to below 1; spreads the pauses of calls.
    jitter: f64,
}

impl RetryPlan {
    /// A plan for so many routes. `jitter`, from 0 to below 1, separates the retries of calls that failed together.
    pub(crate) fn new(routes: usize, jitter: f64) -> Self {
        let ready_at = vec![Some(Duration::ZERO); routes];
        Self { ready_at, failures: vec![None; routes], tries: 0, waited: Duration::ZERO, jitter }
    }

    /// Replaces the routes; returns `false` if there are no other routes or no tries left.
    pub(crate) fn switch_routes(&mut self, routes: usize, is_sent: bool) -> bool {
        if routes == 0 || self.tries + u32::from(is_sent) >= TRIES_MAX {
            return false;
        }
        self.tries += u32::from(is_sent);
        (self.ready_at, self.failures) = (vec![Some(Duration::ZERO); routes], vec![None; routes]);
        true
    }

    /// Decides what to do after a route failed. `is_sent` says whether the request reached its provider, and `left` is
    /// the time until the deadline of the call.
    pub(crate) fn decide(
        &mut self,
        failure: &CallFailure,
        route: usize,
        is_sent: bool,
        now: Duration,
        left: Duration,
    ) -> RetryDecision {
        self.tries += u32::from(is_sent);
        let ready_at = match retry_scope(failure.kind) {
            RetryScope::SameRoute => Some(now + self.pause(failure.retry_after)),
            RetryScope::OtherProvider => None,
            RetryScope::Never => return RetryDecision::GiveUp(failure.clone()),
        };
        if let (Some(ready), Some(last)) = (self.ready_at.get_mut(route), self.failures.get_mut(route)) {
            (*ready, *last) = (ready_at, ready_at.map(|_| failure.clone()));
        }
        let first_ready =
            self.ready_at.iter().enumerate().filter_map(|(route, ready_at)| Some(((*ready_at)?.max(now), route))).min();
        let Some((at, first_ready)) = first_ready else { return RetryDecision::GiveUp(failure.clone()) };
        let after = at.saturating_sub(now);
        // Do not wait for a provider whose circuit is open or whose rate is used up: several failures led to that.
        let may_wait = is_sent || after.is_zero();
        if self.tries >= TRIES_MAX || !may_wait || after > WAIT_MAX || after >= left || self.waited + after > WAITS_MAX
        {
            return RetryDecision::GiveUp(self.final_failure(first_ready, failure, after));
        }
        self.waited += after;
        RetryDecision::TryRoute { route: first_ready, after }
    }

    /// The failure of the route that is ready first. `retry_after` is the time until then, if its provider gave one.
    fn final_failure(&self, first_ready: usize, last: &CallFailure, after: Duration) -> CallFailure {
        let failure = self.failures.get(first_ready).and_then(Option::as_ref).unwrap_or(last);
        let retry_after = failure.retry_after.map(|_| after);
        CallFailure { retry_after, ..failure.clone() }
    }

    /// Pause before the next try, never shorter than the provider asks for.
    fn pause(&self, retry_after: Option<Duration>) -> Duration {
        let full = BACKOFF.pause(self.tries.saturating_sub(1));
        let pause = full.mul_f64(0.8 + 0.4 * self.jitter);
        retry_after.map_or(pause, |requested| pause.max(requested.mul_f64(1.0 + 0.1 * self.jitter)))
    }
}

enum RetryScope {
    /// The same route may succeed after a pause.
    SameRoute,
    /// Only another provider may succeed.
    OtherProvider,
    /// No provider can succeed.
    Never,
}

fn retry_scope(kind: FailureKind) -> RetryScope {
    match kind {
        FailureKind::RateLimited
        | FailureKind::Overloaded
        | FailureKind::Unreachable
        | FailureKind::TimedOut
        | FailureKind::Truncated
        | FailureKind::ProtocolError => RetryScope::SameRoute,
        FailureKind::Quota | FailureKind::Auth | FailureKind::BadRequest => RetryScope::OtherProvider,
        FailureKind::Empty | FailureKind::Cancelled | FailureKind::ContextLength | FailureKind::Refused => {
            RetryScope::Never
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(10);

    fn failure(kind: FailureKind, retry_after: Option<u64>) -> CallFailure {
        CallFailure { retry_after: retry_after.map(Duration::from_secs), ..CallFailure::new(kind, "") }
    }

    fn next(
        plan: &mut RetryPlan,
        route: usize,
        kind: FailureKind,
        retry_after: Option<u64>,
        now: u64,
    ) -> RetryDecision {
        plan.decide(&failure(kind, retry_after), route, true, Duration::from_secs(now), LONG)
    }

    fn ask(route: usize, ms: u64) -> RetryDecision {
        RetryDecision::TryRoute { route, after: Duration::from_millis(ms) }
    }

    #[test]
    fn only_provider_overloaded_is_tried_again_after_growing_pauses() {
        let mut plan = RetryPlan::new(1, 0.5);
        let is_sent: Vec<RetryDecision> =
            (0..4).map(|_| next(&mut plan, 0, FailureKind::Overloaded, None, 0)).collect();
        assert_eq!(
            is_sent,
            [ask(0, 500), ask(0, 1_000), ask(0, 2_000), RetryDecision::GiveUp(failure(FailureKind::Overloaded, None))]
        );
    }

    #[test]
    fn pause_after_a_rate_limit_is_at_least_what_the_provider_asks_for() {
        for jitter in [0.0, 0.5, 0.99] {
            for requested in [0, 1, 7, 9] {
                let RetryDecision::TryRoute { after, .. } =
                    next(&mut RetryPlan::new(1, jitter), 0, FailureKind::RateLimited, Some(requested), 0)
                else {
                    unreachable!()
                };
                assert!(
                    after >= Duration::from_secs(requested) && after >= Duration::from_millis(400),
                    "{requested}: {after:?}"
                );
            }
        }
        // For a longer wait, the orchestrator sets a timer.
        let failure_given_up = failure(FailureKind::RateLimited, Some(11));
        assert_eq!(
            next(&mut RetryPlan::new(1, 0.0), 0, FailureKind::RateLimited, Some(11), 0),
            RetryDecision::GiveUp(failure_given_up)
        );
    }

    #[test]
    fn provider_failed_alternative_is_tried_at_once_then_the_first_when_ready() {
        let mut plan = RetryPlan::new(2, 0.0);
        assert_eq!(next(&mut plan, 0, FailureKind::RateLimited, Some(3), 0), ask(1, 0));
        assert_eq!(next(&mut plan, 1, FailureKind::Unreachable, None, 1), ask(1, 800));
        let mut plan = RetryPlan::new(2, 0.0);
        assert_eq!(next(&mut plan, 0, FailureKind::RateLimited, Some(1), 0), ask(1, 0));
        assert_eq!(next(&mut plan, 1, FailureKind::RateLimited, Some(5), 0), ask(0, 1_000));
    }

    #[test]
    fn permanent_failure_is_tried_at_another_provider_or_given_up() {
        let mut plan = RetryPlan::new(2, 0.0);
        assert_eq!(next(&mut plan, 0, FailureKind::Auth, None, 0), ask(1, 0));
        assert_eq!(
            next(&mut plan, 1, FailureKind::Quota, None, 0),
            RetryDecision::GiveUp(failure(FailureKind::Quota, None))
        );
        for kind in [FailureKind::Refused, FailureKind::ContextLength, FailureKind::Empty, FailureKind::Cancelled] {
            assert_eq!(
                next(&mut RetryPlan::new(2, 0.0), 0, kind, None, 0),
                RetryDecision::GiveUp(failure(kind, None)),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn wait_over_the_deadline_or_the_total_limit_gives_up() {
        let overloaded = failure(FailureKind::Overloaded, Some(8));
        let mut plan = RetryPlan::new(1, 0.0);
        let ended = plan.decide(&overloaded, 0, true, Duration::ZERO, Duration::from_secs(8));
        assert_eq!(ended, RetryDecision::GiveUp(overloaded.clone()));
        let mut plan = RetryPlan::new(1, 0.0);
        let nine = failure(FailureKind::Overloaded, Some(9));
        assert!(matches!(plan.decide(&nine, 0, true, Duration::ZERO, LONG), RetryDecision::TryRoute { .. }));
        plan.waited = WAITS_MAX;
        assert_eq!(plan.decide(&nine, 0, true, Duration::ZERO, LONG), RetryDecision::GiveUp(nine));
    }

    #[test]
    fn circuit_open_gives_up_without_waiting() {
        let alone = failure(FailureKind::Overloaded, Some(1));
        let failure_given_up = RetryPlan::new(1, 0.0).decide(&alone, 0, false, Duration::ZERO, LONG);
        assert_eq!(failure_given_up, RetryDecision::GiveUp(alone.clone()));
        assert_eq!(RetryPlan::new(2, 0.0).decide(&alone, 0, false, Duration::ZERO, LONG), ask(1, 0));
    }

    #[test]
    fn plan_given_up_has_the_failure_of_the_first_ready_route() {
        let mut plan = RetryPlan::new(2, 0.0);
        assert_eq!(next(&mut plan, 0, FailureKind::RateLimited, Some(40), 0), ask(1, 0));
        let failure_given_up = next(&mut plan, 1, FailureKind::Auth, None, 5);
        assert_eq!(failure_given_up, RetryDecision::GiveUp(failure(FailureKind::RateLimited, Some(35))));
    }

    #[test]
    fn request_too_long_counts_as_a_try() {
        let mut plan = RetryPlan::new(1, 0.0);
        for _ in 0..3 {
            assert!(plan.switch_routes(1, true));
        }
        assert!(!plan.switch_routes(1, true) && !RetryPlan::new(1, 0.0).switch_routes(0, true));
    }
}
