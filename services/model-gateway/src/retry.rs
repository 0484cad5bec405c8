//! Which provider is asked next, and when: the one retry loop below the loop. It only goes on as long as nothing of a reply
//! was shown; what was shown cannot be taken back, so that the loop opens a new attempt then.

use std::time::Duration;

use contract::backoff::Backoff;
use contract::model::FailureKind;

use crate::failure::Failure;

/// Requests of one call, all providers together.
pub const TRIES_MAX: u32 = 4;
/// The longest wait in which a gateway's place is held; a longer one is the loop's, whose timers cost nothing.
pub const WAIT_MAX: Duration = Duration::from_secs(10);
/// All waits of one call together.
const WAITS_MAX: Duration = Duration::from_secs(30);
/// The pauses after failures.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(5));

/// What to do after a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Ask this one, after a wait.
    Ask {
        /// Which of the routes.
        route: usize,
        /// How long from now.
        after: Duration,
    },
    /// This failure is the call's: that of the route which may be asked again first, with the time until then.
    GiveUp(Failure),
}

/// What has been tried. Times are counted from the call's beginning.
#[derive(Debug, Clone)]
pub struct Plan {
    /// When each route may be asked, the preferred one first; none for one that will not do.
    free: Vec<Option<Duration>>,
    /// How each route that may do later failed.
    failed: Vec<Option<Failure>>,
    tries: u32,
    waited: Duration,
    /// From 0 to below 1: what spreads pauses.
    spread: f64,
}

impl Plan {
    /// A plan for so many routes. `spread`, from 0 to below 1, parts calls that failed together.
    pub fn new(routes: usize, spread: f64) -> Self {
        let free = vec![Some(Duration::ZERO); routes];
        Self { free, failed: vec![None; routes], tries: 0, waited: Duration::ZERO, spread }
    }

    /// Other routes take the place of the ones so far; `false` where there are none, or no try is left.
    pub fn again(&mut self, routes: usize, asked: bool) -> bool {
        if routes == 0 || self.tries + u32::from(asked) >= TRIES_MAX {
            return false;
        }
        self.tries += u32::from(asked);
        (self.free, self.failed) = (vec![Some(Duration::ZERO); routes], vec![None; routes]);
        true
    }

    /// A route failed; `asked` says whether its provider knows. `left` is what remains until the call's deadline.
    pub fn next(&mut self, failure: &Failure, route: usize, asked: bool, now: Duration, left: Duration) -> Next {
        self.tries += u32::from(asked);
        let free = match after(failure.kind) {
            After::Later => Some(now + self.pause(failure.retry_after)),
            After::Elsewhere => None,
            After::Nowhere => return Next::GiveUp(failure.clone()),
        };
        if let (Some(place), Some(failed)) = (self.free.get_mut(route), self.failed.get_mut(route)) {
            (*place, *failed) = (free, free.map(|_| failure.clone()));
        }
        let soonest = self.free.iter().enumerate().filter_map(|(route, free)| Some(((*free)?.max(now), route))).min();
        let Some((at, soonest)) = soonest else { return Next::GiveUp(failure.clone()) };
        let after = at.saturating_sub(now);
        // Who is not to be asked now is not waited for: there is more to a refusal of ours than a single failure.
        let waits = asked || after.is_zero();
        if self.tries >= TRIES_MAX || !waits || after > WAIT_MAX || after >= left || self.waited + after > WAITS_MAX {
            return Next::GiveUp(self.told(soonest, failure, after));
        }
        self.waited += after;
        Next::Ask { route: soonest, after }
    }

    /// What the loop is told: how the route failed that may be asked again first, and when that is, where its provider has a
    /// wish.
    fn told(&self, soonest: usize, last: &Failure, after: Duration) -> Failure {
        let failure = self.failed.get(soonest).and_then(Option::as_ref).unwrap_or(last);
        let retry_after = failure.retry_after.map(|_| after);
        Failure { retry_after, ..failure.clone() }
    }

    /// Never shorter than what the provider asks for.
    fn pause(&self, retry_after: Option<Duration>) -> Duration {
        let full = BACKOFF.pause(self.tries.saturating_sub(1));
        let pause = full.mul_f64(0.8 + 0.4 * self.spread);
        retry_after.map_or(pause, |wish| pause.max(wish.mul_f64(1.0 + 0.1 * self.spread)))
    }
}

enum After {
    /// The same route may do after a while.
    Later,
    /// Only another provider may do.
    Elsewhere,
    /// No provider will do.
    Nowhere,
}

fn after(kind: FailureKind) -> After {
    match kind {
        FailureKind::RateLimited
        | FailureKind::Overloaded
        | FailureKind::Unreachable
        | FailureKind::TimedOut
        | FailureKind::Truncated
        | FailureKind::ProtocolError => After::Later,
        FailureKind::Quota | FailureKind::Auth | FailureKind::BadRequest => After::Elsewhere,
        FailureKind::Empty | FailureKind::Cancelled | FailureKind::ContextLength | FailureKind::Refused => {
            After::Nowhere
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(10);

    fn failure(kind: FailureKind, retry_after: Option<u64>) -> Failure {
        Failure { retry_after: retry_after.map(Duration::from_secs), ..Failure::new(kind, "") }
    }

    fn next(plan: &mut Plan, route: usize, kind: FailureKind, retry_after: Option<u64>, now: u64) -> Next {
        plan.next(&failure(kind, retry_after), route, true, Duration::from_secs(now), LONG)
    }

    fn ask(route: usize, ms: u64) -> Next {
        Next::Ask { route, after: Duration::from_millis(ms) }
    }

    #[test]
    fn one_provider_is_asked_again_after_growing_pauses() {
        let mut plan = Plan::new(1, 0.5);
        let asked: Vec<Next> = (0..4).map(|_| next(&mut plan, 0, FailureKind::Overloaded, None, 0)).collect();
        assert_eq!(
            asked,
            [ask(0, 500), ask(0, 1_000), ask(0, 2_000), Next::GiveUp(failure(FailureKind::Overloaded, None))]
        );
    }

    #[test]
    fn no_pause_is_shorter_than_the_provider_asks_for() {
        for spread in [0.0, 0.5, 0.99] {
            for wish in [0, 1, 7, 9] {
                let Next::Ask { after, .. } =
                    next(&mut Plan::new(1, spread), 0, FailureKind::RateLimited, Some(wish), 0)
                else {
                    unreachable!()
                };
                assert!(after >= Duration::from_secs(wish) && after >= Duration::from_millis(400), "{wish}: {after:?}");
            }
        }
        // A longer wait is the loop's.
        let told = failure(FailureKind::RateLimited, Some(11));
        assert_eq!(next(&mut Plan::new(1, 0.0), 0, FailureKind::RateLimited, Some(11), 0), Next::GiveUp(told));
    }

    #[test]
    fn another_provider_is_asked_at_once_and_the_first_one_again_when_it_may_be() {
        let mut plan = Plan::new(2, 0.0);
        assert_eq!(next(&mut plan, 0, FailureKind::RateLimited, Some(3), 0), ask(1, 0));
        assert_eq!(next(&mut plan, 1, FailureKind::Unreachable, None, 1), ask(1, 800));
        let mut plan = Plan::new(2, 0.0);
        assert_eq!(next(&mut plan, 0, FailureKind::RateLimited, Some(1), 0), ask(1, 0));
        assert_eq!(next(&mut plan, 1, FailureKind::RateLimited, Some(5), 0), ask(0, 1_000));
    }

    #[test]
    fn what_waiting_cannot_mend_is_tried_elsewhere_or_given_up() {
        let mut plan = Plan::new(2, 0.0);
        assert_eq!(next(&mut plan, 0, FailureKind::Auth, None, 0), ask(1, 0));
        assert_eq!(next(&mut plan, 1, FailureKind::Quota, None, 0), Next::GiveUp(failure(FailureKind::Quota, None)));
        for kind in [FailureKind::Refused, FailureKind::ContextLength, FailureKind::Empty, FailureKind::Cancelled] {
            assert_eq!(next(&mut Plan::new(2, 0.0), 0, kind, None, 0), Next::GiveUp(failure(kind, None)), "{kind:?}");
        }
    }

    #[test]
    fn waits_end_with_the_deadline_and_together_have_a_limit() {
        let overloaded = failure(FailureKind::Overloaded, Some(8));
        let mut plan = Plan::new(1, 0.0);
        let ended = plan.next(&overloaded, 0, true, Duration::ZERO, Duration::from_secs(8));
        assert_eq!(ended, Next::GiveUp(overloaded.clone()));
        let mut plan = Plan::new(1, 0.0);
        let nine = failure(FailureKind::Overloaded, Some(9));
        assert!(matches!(plan.next(&nine, 0, true, Duration::ZERO, LONG), Next::Ask { .. }));
        plan.waited = WAITS_MAX;
        assert_eq!(plan.next(&nine, 0, true, Duration::ZERO, LONG), Next::GiveUp(nine));
    }

    #[test]
    fn who_is_not_to_be_asked_now_is_not_waited_for() {
        let alone = failure(FailureKind::Overloaded, Some(1));
        let told = Plan::new(1, 0.0).next(&alone, 0, false, Duration::ZERO, LONG);
        assert_eq!(told, Next::GiveUp(alone.clone()));
        assert_eq!(Plan::new(2, 0.0).next(&alone, 0, false, Duration::ZERO, LONG), ask(1, 0));
    }

    #[test]
    fn the_loop_is_told_of_the_provider_that_may_be_asked_again_first() {
        let mut plan = Plan::new(2, 0.0);
        assert_eq!(next(&mut plan, 0, FailureKind::RateLimited, Some(40), 0), ask(1, 0));
        let told = next(&mut plan, 1, FailureKind::Auth, None, 5);
        assert_eq!(told, Next::GiveUp(failure(FailureKind::RateLimited, Some(35))));
    }

    #[test]
    fn a_request_that_was_too_long_counts() {
        let mut plan = Plan::new(1, 0.0);
        for _ in 0..3 {
            assert!(plan.again(1, true));
        }
        assert!(!plan.again(1, true) && !Plan::new(1, 0.0).again(0, true));
    }
}
