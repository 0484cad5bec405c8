//! Counts the failures of each input at this replica. The server's count of deliveries is not enough: an input that
//! waited for the bus, or for its session, was delivered often and never failed.

use quick_cache::sync::Cache;

/// Failures of an input at this replica before it is rejected, if it was also delivered too often.
const FAILURES_MIN: u32 = 10;
/// Inputs that are counted. One that is forgotten is retried for a little longer.
const INPUTS_MAX: usize = 1_024;

/// Failures by the subject of the input.
#[derive(Debug)]
pub(crate) struct FailureCounts(Cache<String, u32>);

impl Default for FailureCounts {
    fn default() -> Self {
        Self(Cache::new(INPUTS_MAX))
    }
}

impl FailureCounts {
    /// Counts a failure. Returns whether the input failed here often enough to be rejected. Each input is handled by one
    /// task at a time.
    pub(crate) fn count(&self, input: &str) -> bool {
        let count = self.0.get(input).unwrap_or_default().saturating_add(1);
        self.0.insert(input.to_owned(), count);
        count >= FAILURES_MIN
    }

    /// Removes an input that was handled.
    pub(crate) fn forget(&self, input: &str) {
        self.0.remove(input);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle_error::HandleError;
    use crate::session_runner::Handled;
    use crate::settlement::settle;
    use crate::testing::delivery;
    use bus::BusError;
    use bus::work::Settle;
    use bytes::Bytes;
    use contract::limits::DELIVERIES_MAX;
    use contract::subject::SessionKey;
    use contract::{SessionId, TenantId};

    fn key() -> SessionKey {
        SessionKey { tenant: TenantId::default(), session: SessionId::new("s").unwrap() }
    }

    fn internal_error() -> Result<Handled, HandleError> {
        Err(HandleError::Internal("broken".to_owned()))
    }

    #[tokio::test]
    async fn input_waited_often_for_the_bus_first_failure_does_not_reject_it() {
        let (failures, key) = (FailureCounts::default(), key());
        let settle =
            async |delivered, result| settle(&failures, &key, &delivery("a", delivered, Bytes::new()), result).await;
        let unavailable = || Err(HandleError::Bus(BusError::Unavailable("unavailable".to_owned())));
        for delivered in 1..=2 * DELIVERIES_MAX {
            assert!(matches!(settle(delivered, unavailable()).await, Settle::Retry(_)));
        }
        for _ in 1..FAILURES_MIN {
            assert!(matches!(settle(2 * DELIVERIES_MAX, internal_error()).await, Settle::Retry(_)));
        }
        assert!(matches!(settle(2 * DELIVERIES_MAX, internal_error()).await, Settle::Reject { .. }));
        assert!(matches!(settle(1, Ok(Handled::default())).await, Settle::Done));
        assert!(matches!(settle(2 * DELIVERIES_MAX, internal_error()).await, Settle::Retry(_)));
    }

    #[tokio::test]
    async fn input_fails_for_ever_other_inputs_of_the_session_are_not_rejected() {
        let (failures, key) = (FailureCounts::default(), key());
        let settle = async |subject: &str, result| {
            settle(&failures, &key, &delivery(subject, 2 * DELIVERIES_MAX, Bytes::new()), result).await
        };
        for _ in 0..2 * FAILURES_MIN {
            let _settled = settle("a", internal_error()).await;
        }
        assert!(matches!(settle("b", internal_error()).await, Settle::Retry(_)));
        // And a success of one input does not reset the count of another.
        assert!(matches!(settle("b", Ok(Handled::default())).await, Settle::Done));
        assert!(matches!(settle("a", internal_error()).await, Settle::Reject { .. }));
    }
}
