//! Requests to the prompt-composer.

use std::time::Duration;

use bus::{Bus, BusError};
use contract::backoff::Backoff;
use contract::compose::{ComposeReply, ComposeRequest, Composed};
use tokio::time::Instant;

use crate::api_error::ApiError;

/// Longest wait of a command for a composer, and the backoff between two requests. A composer reconnects within a
/// second.
const COMPOSER_BACK_MAX: Duration = Duration::from_secs(2);
const COMPOSER_BACK: Backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(320));

/// Asks the composer, and waits a moment for one whose connection broke: it is back soon, and without the request. The
/// request changes nothing, so it may be made again.
pub(crate) async fn compose(bus: &Bus, request: &ComposeRequest) -> Result<Composed, ApiError> {
    let began = Instant::now();
    let mut tries = 0;
    loop {
        match bus.compose(request).await {
            Err(BusError::NoResponders { .. }) if began.elapsed() < COMPOSER_BACK_MAX => {
                tokio::time::sleep(COMPOSER_BACK.pause(tries)).await;
            }
            // The request, or its answer, was lost with a connection.
            Err(BusError::Timeout { .. }) if tries == 0 => {}
            Err(error @ (BusError::NoResponders { .. } | BusError::Timeout { .. })) => {
                let message = "no prompt-composer answers: start one (`ailoop up` does), or look at its log";
                tracing::warn!(%error, "no composer");
                return Err(ApiError::unavailable(message));
            }
            Err(error) => return Err(error.into()),
            Ok(ComposeReply::Composed(composed)) => return Ok(*composed),
            Ok(ComposeReply::Refused { code, message }) => return Err(ApiError::new(code, message)),
        }
        tries += 1;
    }
}
