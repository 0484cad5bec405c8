//! Which sessions failed here by themselves. The server's count of deliveries does not tell: an input that waited for the
//! bus, or for its session, was delivered often and never failed.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use contract::subject::SessionKey;

/// Failures of a session in a row, at this replica, before an input that was delivered too often is given up.
const FAILURES_MIN: u32 = 10;
/// Sessions that are remembered; with more, all are forgotten, and inputs come again for a little longer.
const SESSIONS_MAX: usize = 1_024;

/// Failures in a row, by session.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<HashMap<SessionKey, u32>>);

impl Failures {
    /// Counts a failure; whether the session failed here often enough to give an input up.
    pub(crate) fn count(&self, key: &SessionKey) -> bool {
        self.with(|failures| {
            if failures.len() >= SESSIONS_MAX && !failures.contains_key(key) {
                failures.clear();
            }
            let count = failures.entry(key.clone()).or_default();
            *count = count.saturating_add(1);
            *count >= FAILURES_MIN
        })
    }

    /// The session was handled.
    pub(crate) fn forget(&self, key: &SessionKey) {
        self.with(|failures| failures.remove(key));
    }

    // A plain lock: it is held for one access to the map.
    fn with<T>(&self, access: impl FnOnce(&mut HashMap<SessionKey, u32>) -> T) -> T {
        access(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::settle;
    use crate::shell::Trouble;
    use bus::BusError;
    use bus::work::Settle;
    use contract::limits::DELIVERIES_MAX;
    use contract::{SessionId, TenantId};

    #[test]
    fn input_waited_for_the_bus_often_its_first_failure_does_not_give_it_up() {
        let failures = Failures::default();
        let key = SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() };
        let broken = || Err(Trouble::Internal("broken".to_owned()));
        let away = || Err(Trouble::Bus(BusError::Unavailable("away".to_owned())));
        for delivered in 1..=2 * DELIVERIES_MAX {
            assert!(matches!(settle(&failures, &key, delivered, away()), Settle::Retry(_)));
        }
        for _ in 1..FAILURES_MIN {
            assert!(matches!(settle(&failures, &key, 2 * DELIVERIES_MAX, broken()), Settle::Retry(_)));
        }
        assert!(matches!(settle(&failures, &key, 2 * DELIVERIES_MAX, broken()), Settle::Reject { .. }));
        assert!(matches!(settle(&failures, &key, 1, Ok(())), Settle::Done));
        assert!(matches!(settle(&failures, &key, 2 * DELIVERIES_MAX, broken()), Settle::Retry(_)));
    }
}
