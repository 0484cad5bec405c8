//! The audit log of refused credentials: one line at once, and then one line in a minute with the number of the others.
//! Clients without a credential must not fill the log.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::api_error::ApiError;

/// Interval in which the refusals of one address are counted for one line.
const INTERVAL: Duration = Duration::from_mins(1);
/// Addresses that are counted each by itself; the others are counted together.
const ADDRESSES_MAX: usize = 1_024;

/// The refusals since the last lines. Clones are the same log.
#[derive(Debug, Clone, Default)]
pub struct RefusalLog(Arc<Mutex<HashMap<Option<IpAddr>, RefusalCount>>>);

/// Refusals of one address that were counted and not written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct RefusalCount {
    count: u64,
    /// The code and reason of the last one.
    last: Option<(String, String)>,
}

impl RefusalLog {
    /// Writes a refusal, or counts it where the address had one in this interval.
    pub(super) fn note(&self, address: IpAddr, error: &ApiError) {
        if self.count(address, error) {
            tracing::info!(
                target: "audit",
                outcome = error.code.as_str(), reason = error.message, %address,
                "access"
            );
        }
    }

    /// Writes what was counted, again and again, until the task ends.
    pub async fn follow(self) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            for (address, RefusalCount { count, last }) in self.take() {
                let Some((outcome, reason)) = last else { continue };
                let address = address.map_or_else(|| "others".to_owned(), |address| address.to_string());
                tracing::info!(target: "audit", outcome, reason, address, count, "access");
            }
        }
    }

    /// Whether a refusal is the first one of its address in this interval. The others are counted.
    fn count(&self, address: IpAddr, error: &ApiError) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_own = counts.contains_key(&Some(address)) || counts.len() < ADDRESSES_MAX;
        let counted = counts.entry(Some(address).filter(|_| is_own));
        let mut is_first = false;
        let counted = counted.or_insert_with(|| {
            is_first = true;
            RefusalCount::default()
        });
        if !is_first {
            counted.count += 1;
            counted.last = Some((error.code.as_str().to_owned(), error.message.clone()));
        }
        is_first
    }

    /// Takes the counts of the interval that ends.
    fn take(&self) -> Vec<(Option<IpAddr>, RefusalCount)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use contract::ErrorCode;

    use super::*;

    #[test]
    fn refusals_of_an_address_are_one_line_and_a_count() {
        let log = RefusalLog::default();
        let error = |text: &str| ApiError::new(ErrorCode::Unauthorized, text);
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let written = ["a", "b", "c"].map(|reason| log.count(address(1), &error(reason)));
        assert_eq!(written, [true, false, false]);
        assert!(log.count(address(2), &error("a")), "another address has a line of its own");
        let mut counts = log.take();
        counts.sort_by_key(|(address, _)| *address);
        let last = Some(("unauthorized".to_owned(), "c".to_owned()));
        assert_eq!(counts[0], (Some(address(1)), RefusalCount { count: 2, last }));
        assert_eq!(counts[1], (Some(address(2)), RefusalCount::default()));
        assert!(log.count(address(1), &error("d")), "the next interval has its line");
    }

    #[test]
    fn many_addresses_are_counted_together() {
        let log = RefusalLog::default();
        let written = (0..u32::try_from(ADDRESSES_MAX).unwrap() * 2)
            .filter(|n| log.count(IpAddr::V4((*n).into()), &ApiError::new(ErrorCode::Unauthorized, "no")))
            .count();
        assert_eq!(written, ADDRESSES_MAX + 1);
        assert_eq!(log.take().len(), ADDRESSES_MAX + 1);
    }
}
