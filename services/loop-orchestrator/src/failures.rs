//! Which inputs failed here by themselves. The server's count of deliveries does not tell: an input that waited for the
//! bus, or for its session, was delivered often and never failed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Failures of an input at this replica before it is given up, if it was delivered too often as well.
const FAILURES_MIN: u32 = 10;
/// Inputs that are remembered. With more, all are forgotten, and inputs are tried a little longer.
const INPUTS_MAX: usize = 1_024;

/// Failures by input, which its subject names.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<HashMap<String, u32>>);

impl Failures {
    /// Counts a failure. Returns whether the input failed here often enough to be given up.
    pub(crate) fn count(&self, input: &str) -> bool {
        self.with(|failures| {
            if failures.len() >= INPUTS_MAX && !failures.contains_key(input) {
                failures.clear();
            }
            let count = failures.entry(input.to_owned()).or_default();
            *count = count.saturating_add(1);
            *count >= FAILURES_MIN
        })
    }

    /// Forgets an input that was handled.
    pub(crate) fn forget(&self, input: &str) {
        self.with(|failures| failures.remove(input));
    }

    // A plain lock: it is held for one access to the map.
    fn with<T>(&self, access: impl FnOnce(&mut HashMap<String, u32>) -> T) -> T {
        access(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{Taken, settle};
    use crate::shell::Trouble;
    use bus::BusError;
    use bus::work::Settle;
    use contract::limits::DELIVERIES_MAX;
    use contract::subject::SessionKey;
    use contract::{SessionId, TenantId};

    fn key() -> SessionKey {
        SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() }
    }

    fn broken() -> Result<(), Trouble> {
        Err(Trouble::Internal("broken".to_owned()))
    }

    #[test]
    fn input_waited_for_the_bus_often_its_first_failure_does_not_give_it_up() {
        let (failures, key) = (Failures::default(), key());
        let taken = |delivered| Taken { key: &key, subject: "a", delivered };
        let away = || Err(Trouble::Bus(BusError::Unavailable("away".to_owned())));
        for delivered in 1..=2 * DELIVERIES_MAX {
            assert!(matches!(settle(&failures, taken(delivered), away()), Settle::Retry(_)));
        }
        for _ in 1..FAILURES_MIN {
            assert!(matches!(settle(&failures, taken(2 * DELIVERIES_MAX), broken()), Settle::Retry(_)));
        }
        assert!(matches!(settle(&failures, taken(2 * DELIVERIES_MAX), broken()), Settle::Reject { .. }));
        assert!(matches!(settle(&failures, taken(1), Ok(())), Settle::Done));
        assert!(matches!(settle(&failures, taken(2 * DELIVERIES_MAX), broken()), Settle::Retry(_)));
    }

    #[test]
    fn input_fails_for_ever_others_of_its_session_are_not_given_up_for_it() {
        let (failures, key) = (Failures::default(), key());
        let taken = |subject| Taken { key: &key, subject, delivered: 2 * DELIVERIES_MAX };
        for _ in 0..2 * FAILURES_MIN {
            let _settled = settle(&failures, taken("a"), broken());
        }
        assert!(matches!(settle(&failures, taken("b"), broken()), Settle::Retry(_)));
        // And what is handled well does not give the bad one more time.
        assert!(matches!(settle(&failures, taken("b"), Ok(())), Settle::Done));
        assert!(matches!(settle(&failures, taken("a"), broken()), Settle::Reject { .. }));
    }
}
