//! Settlement of a delivery by the result of its handling.

use std::time::Duration;

use bus::work::Settle;
use bus::{BusError, Delivery};
use contract::ErrorCode;
use contract::backoff::Backoff;
use contract::limits::DELIVERIES_MAX;
use contract::subject::SessionKey;

use crate::failure_counts::FailureCounts;
use crate::handle_error::HandleError;
use crate::session_runner::Handled;

/// Backoff of an input while the bus or the composer fails.
const RETRY: Backoff = Backoff::new(Duration::from_millis(500), RETRY_MAX);
/// The longest pause of this backoff. An input that only a replica of a newer version can handle is retried after it.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// Decides how to settle a delivery by the result of its handling. An input is retried without a limit while the bus
/// fails. An input that fails because of its session is rejected after enough failures, so that it is not retried for
/// ever. Waits until the spans of a turn that the input ended are exported: until then another replica sends them if this
/// one dies.
pub(crate) async fn settle(
    failures: &FailureCounts,
    key: &SessionKey,
    delivery: &Delivery,
    result: Result<Handled, HandleError>,
) -> Settle {
    // No other input has the same subject.
    let Delivery { subject, delivered, .. } = delivery;
    let delivered = *delivered;
    let pause = RETRY.pause(u32::try_from(delivered.saturating_sub(1)).unwrap_or(u32::MAX));
    match result {
        Ok(handled) => {
            if handled.sent_spans {
                telemetry::trace::flushed().await;
            }
            failures.forget(subject);
            Settle::Done
        }
        Err(HandleError::Bus(BusError::Malformed(why)) | HandleError::Internal(why)) => {
            tracing::error!(session = %key, why, delivered, "an input cannot be handled");
            // The failure counts also where the deliveries are few.
            let is_exhausted = failures.count(subject);
            if !is_exhausted || delivered < DELIVERIES_MAX {
                return Settle::Retry(pause);
            }
            Settle::Reject { code: ErrorCode::TooManyDeliveries, reason: why }
        }
        Err(HandleError::Bus(error @ BusError::TooLarge { .. })) => {
            tracing::error!(session = %key, %error, "an input cannot be written");
            Settle::Reject { code: ErrorCode::TooLarge, reason: error.to_string() }
        }
        Err(HandleError::Bus(error)) => {
            tracing::warn!(session = %key, %error, "an input waits for the bus");
            Settle::Retry(pause)
        }
        Err(HandleError::Skewed(skew)) => {
            tracing::error!(session = %key, %skew, "the clock of this replica is wrong; another replica handles the input");
            Settle::Retry(RETRY_MAX)
        }
        Err(HandleError::Busy | HandleError::Split) => Settle::Retry(RETRY.pause(0)),
        Err(HandleError::Newer { fold }) => {
            tracing::warn!(session = %key, fold, "a newer version wrote this session or sent the input; its replicas handle the input");
            Settle::Retry(RETRY_MAX)
        }
        Err(HandleError::Poison) => {
            Settle::Reject { code: ErrorCode::Poison, reason: "the loop panicked over this input".to_owned() }
        }
    }
}
