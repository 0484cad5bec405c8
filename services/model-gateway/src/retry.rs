//! Which provider is asked next, and when: the one retry loop below the loop. It only goes on as long as nothing of a reply
//! was shown; what was shown cannot be taken back, so that the loop opens a new attempt then.

use std::time::Duration;

use contract::backoff::Backoff;
use contract::model::FailureKind;

use crate::failure::CallFailure;

/// Requests of one call, all providers together.
pub(crate) const TRIES_MAX: u32 = 4;
/// The longest wait in which a gateway's place is held; a longer one is the loop's, whose timers cost nothing.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(10);
/// All waits of one call together.
const WAITS_MAX: Duration = Duration::from_secs(30);
/// The pauses after failures.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(5));

/// What to do after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// Ask this one, after a wait.
    TryRoute {
        /// Which of the routes.
        route: usize,
        /// How long from now.
        after: Duration,
    },
    /// This failure is the call's: that of the route which may be asked again first, with the time until then.
    GiveUp(CallFailure),
}

/// What has been tried. Times are counted from the call's beginning.
#[derive(Debug, Clone)]
pub(crate) struct RetryPlan {
    /// When each route may be asked, the preferred one first; none for one that will not do.
    ready_at: Vec<Option<Duration>>,
    /// How each route that may do later failed.
    failures: Vec<Option<CallFailure>>,
    tries: u32,
    waited: Duration,
    /// From 0 to below 1: what spreads pauses.
    jitter: f64,
}

impl RetryPlan {
    /// A plan for so many routes. `spread`, from 0 to below 1, parts calls that failed together.
    pub(crate) fn new(routes: usize, jitter: f64) -> Self {
        let ready_at = vec![Some(Duration::ZERO); routes];
        Self { ready_at, failures: vec![None; routes], tries: 0, waited: Duration::ZERO, jitter }
    }

    /// Other routes take the place of the ones so far; `false` where there are none, or no try is left.
    pub(crate) fn switch_routes(&mut self, routes: usize, is_sent: bool) -> bool {
        if routes == 0 || self.tries + u32::from(is_sent) >= TRIES_MAX {
            return false;
        }
        self.tries += u32::from(is_sent);
        (self.ready_at, self.failures) = (vec![Some(Duration::ZERO); routes], vec![None; routes]);
        true
    }

    /// A route failed; `asked` says whether its provider knows. `left` is what remains until the call's deadline.
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
        // Who is not to be asked now is not waited for: there is more to a refusal of ours than a single failure.
        let may_wait = is_sent || after.is_zero();
        if self.tries >= TRIES_MAX || !may_wait || after > WAIT_MAX || after >= left || self.waited + after > WAITS_MAX
        {
            return RetryDecision::GiveUp(self.final_failure(first_ready, failure, after));
        }
        self.waited += after;
        RetryDecision::TryRoute { route: first_ready, after }
    }

    /// What the loop is told: how the route failed that may be asked again first, and when that is, where its provider has a
    /// wish.
    fn final_failure(&self, first_ready: usize, last: &CallFailure, after: Duration) -> CallFailure {
        let failure = self.failures.get(first_ready).and_then(Option::as_ref).unwrap_or(last);
        let retry_after = failure.retry_after.map(|_| after);
        CallFailure { retry_after, ..failure.clone() }
    }

    /// Never shorter than what the provider asks for.
    fn pause(&self, retry_after: Option<Duration>) -> Duration {
        let full = BACKOFF.pause(self.tries.saturating_sub(1));
        let pause = full.mul_f64(0.8 + 0.4 * self.jitter);
        retry_after.map_or(pause, |requested| pause.max(requested.mul_f64(1.0 + 0.1 * self.jitter)))
    }
}

enum RetryScope {
    /// The same route may do after a while.
    SameRoute,
    /// Only another provider may do.
    OtherProvider,
    /// No provider will do.
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
    fn one_provider_is_asked_again_after_growing_pauses() {
        let mut plan = RetryPlan::new(1, 0.5);
        let is_sent: Vec<RetryDecision> =
            (0..4).map(|_| next(&mut plan, 0, FailureKind::Overloaded, None, 0)).collect();
        assert_eq!(
            is_sent,
            [ask(0, 500), ask(0, 1_000), ask(0, 2_000), RetryDecision::GiveUp(failure(FailureKind::Overloaded, None))]
        );
    }

    #[test]
    fn no_pause_is_shorter_than_the_provider_asks_for() {
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
        // A longer wait is the loop's.
        let failure_given_up = failure(FailureKind::RateLimited, Some(11));
        assert_eq!(
            next(&mut RetryPlan::new(1, 0.0), 0, FailureKind::RateLimited, Some(11), 0),
            RetryDecision::GiveUp(failure_given_up)
        );
    }

    #[test]
    fn another_provider_is_asked_at_once_and_the_first_one_again_when_it_may_be() {
        let mut plan = RetryPlan::new(2, 0.0);
        assert_eq!(next(&mut plan, 0, FailureKind::RateLimited, Some(3), 0), ask(1, 0));
        assert_eq!(next(&mut plan, 1, FailureKind::Unreachable, None, 1), ask(1, 800));
        let mut plan = RetryPlan::new(2, 0.0);
        assert_eq!(next(&mut plan, 0, FailureKind::RateLimited, Some(1), 0), ask(1, 0));
        assert_eq!(next(&mut plan, 1, FailureKind::RateLimited, Some(5), 0), ask(0, 1_000));
    }

    #[test]
    fn what_waiting_cannot_mend_is_tried_elsewhere_or_given_up() {
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
    fn waits_end_with_the_deadline_and_together_have_a_limit() {
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
    fn who_is_not_to_be_asked_now_is_not_waited_for() {
        let alone = failure(FailureKind::Overloaded, Some(1));
        let failure_given_up = RetryPlan::new(1, 0.0).decide(&alone, 0, false, Duration::ZERO, LONG);
        assert_eq!(failure_given_up, RetryDecision::GiveUp(alone.clone()));
        assert_eq!(RetryPlan::new(2, 0.0).decide(&alone, 0, false, Duration::ZERO, LONG), ask(1, 0));
    }

    #[test]
    fn the_loop_is_told_of_the_provider_that_may_be_asked_again_first() {
        let mut plan = RetryPlan::new(2, 0.0);
        assert_eq!(next(&mut plan, 0, FailureKind::RateLimited, Some(40), 0), ask(1, 0));
        let failure_given_up = next(&mut plan, 1, FailureKind::Auth, None, 5);
        assert_eq!(failure_given_up, RetryDecision::GiveUp(failure(FailureKind::RateLimited, Some(35))));
    }

    #[test]
    fn a_request_that_was_too_long_counts() {
        let mut plan = RetryPlan::new(1, 0.0);
        for _ in 0..3 {
            assert!(plan.switch_routes(1, true));
        }
        assert!(!plan.switch_routes(1, true) && !RetryPlan::new(1, 0.0).switch_routes(0, true));
    }
}
