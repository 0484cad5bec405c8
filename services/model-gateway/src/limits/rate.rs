//! Token buckets for the rate limits of one provider's key: requests and tokens per minute.
//!
//! The burst is a tenth of the limit, and nine tenths are refilled over a minute, so that no minute exceeds the limit.
//! A request for more than the bucket has is granted for a later time at once, so that it need not ask again.

use std::time::Duration;

use configuration::models::Rates;
use contract::Timestamp;
use serde::{Deserialize, Serialize};

use super::entry::SharedEntry;

/// Burst, as a share of the limit per minute.
const BURST: f64 = 0.1;
const MINUTE_MS: f64 = 60_000.0;

/// Fill level, shared by all gateways. A negative level is granted to requests that wait.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct TokenBucket {
    requests: f64,
    tokens: f64,
    at: Timestamp,
}

/// A change of a bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RateRequest {
    /// Take one request and its tokens from the bucket.
    Take {
        /// Estimated tokens of the request and its reply.
        tokens: u64,
        /// Longest wait that the call accepts.
        max_wait: Duration,
    },
    /// Correct an estimate after the reply.
    Correct {
        /// Used tokens minus estimated tokens.
        difference: i64,
    },
}

/// Answer to a request for tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grant {
    /// The request may be sent after this wait.
    After(Duration),
    /// The wait would be longer than the call accepts; nothing was taken.
    TooLong(Duration),
}

impl SharedEntry for TokenBucket {
    type Request = (Rates, RateRequest);
    type Response = Grant;

    fn new(now: Timestamp) -> Self {
        // A full bucket: the level is cut to the burst when the limit is known.
        Self { requests: f64::MAX, tokens: f64::MAX, at: now }
    }

    fn apply(&mut self, (rates, request): &Self::Request, now: Timestamp) -> Grant {
        self.refill(*rates, now);
        match request {
            RateRequest::Take { tokens, max_wait } => self.take(*rates, *tokens, *max_wait),
            RateRequest::Correct { difference } => {
                if rates.tokens_per_minute.is_some() {
                    self.tokens -= to_float(*difference);
                }
                Grant::After(Duration::ZERO)
            }
        }
    }
}

impl TokenBucket {
    /// Refills the bucket for the time since the last change. A clock that is behind changes nothing.
    fn refill(&mut self, rates: Rates, now: Timestamp) {
        let ms = now.since(self.at).as_secs_f64() * 1e3;
        self.at = self.at.max(now);
        for (bucket, limit) in
            [(&mut self.requests, rates.requests_per_minute), (&mut self.tokens, rates.tokens_per_minute)]
        {
            *bucket = limit.map_or(0.0, |limit| (*bucket + ms * per_ms(limit)).min(burst(limit)));
        }
    }

    fn take(&mut self, rates: Rates, tokens: u64, max_wait: Duration) -> Grant {
        let wait = |bucket: f64, limit: Option<u64>, amount: f64| {
            // A request larger than the burst is granted when the bucket is full, and makes its level negative.
            limit.map_or(0.0, |limit| ((amount.min(burst(limit)) - bucket) / per_ms(limit)).max(0.0))
        };
        #[allow(clippy::cast_precision_loss, reason = "a rate, not an account")]
        let tokens = tokens as f64;
        let ms =
            wait(self.requests, rates.requests_per_minute, 1.0).max(wait(self.tokens, rates.tokens_per_minute, tokens));
        let wait = Duration::from_secs_f64((ms / 1e3).min(1e9));
        if wait > max_wait {
            return Grant::TooLong(wait);
        }
        self.requests -= f64::from(u8::from(rates.requests_per_minute.is_some()));
        if rates.tokens_per_minute.is_some() {
            self.tokens -= tokens;
        }
        Grant::After(wait)
    }
}

#[allow(clippy::cast_precision_loss, reason = "a rate, not an account")]
fn burst(per_minute: u64) -> f64 {
    (per_minute as f64 * BURST).max(1.0)
}

#[allow(clippy::cast_precision_loss, reason = "a rate, not an account")]
fn per_ms(per_minute: u64) -> f64 {
    per_minute as f64 * (1.0 - BURST) / MINUTE_MS
}

#[allow(clippy::cast_precision_loss, reason = "a rate, not an account")]
fn to_float(tokens: i64) -> f64 {
    tokens as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Rates = Rates { requests_per_minute: None, tokens_per_minute: None };
    const HOUR: Duration = Duration::from_hours(1);

    fn bucket() -> (TokenBucket, Timestamp) {
        let now = Timestamp::from_millis(1_000_000);
        (TokenBucket::new(now), now)
    }

    fn take(tokens: u64, max_wait: Duration) -> RateRequest {
        RateRequest::Take { tokens, max_wait }
    }

    /// Takes as often as the bucket grants within a minute, and returns how often.
    fn in_a_minute(rates: Rates, tokens: u64) -> u64 {
        let (mut bucket, now) = bucket();
        let minute = Duration::from_mins(1);
        let mut granted = 0;
        while let Grant::After(wait) = bucket.apply(&(rates, take(tokens, HOUR)), now) {
            if wait > minute {
                break;
            }
            granted += 1;
        }
        granted
    }

    #[test]
    fn requests_within_a_minute_stay_within_the_limit() {
        for limit in [1, 7, 60, 5_000] {
            let rates = Rates { requests_per_minute: Some(limit), ..NONE };
            let granted = in_a_minute(rates, 1_000);
            assert!(granted <= limit.max(1) && granted + 1 >= limit, "{granted} of {limit}");
        }
        assert_eq!(in_a_minute(Rates { tokens_per_minute: Some(100_000), ..NONE }, 10_000), 10);
        // A request larger than the burst is granted, and the next one waits for all of it.
        assert_eq!(in_a_minute(Rates { tokens_per_minute: Some(10_000), ..NONE }, 30_000), 1);
    }

    #[test]
    fn requests_over_the_rate_are_granted_in_order() {
        let (mut bucket, now) = bucket();
        let rates = Rates { requests_per_minute: Some(10), ..NONE };
        let waits: Vec<Grant> = (0..4).map(|_| bucket.apply(&(rates, take(1, Duration::from_secs(15))), now)).collect();
        let after = |ms| Grant::After(Duration::from_millis(ms));
        assert_eq!(waits[0], after(0));
        assert!(matches!(waits[1], Grant::After(wait) if (6_600..6_700).contains(&wait.as_millis())), "{waits:?}");
        assert!(matches!(waits[2], Grant::After(wait) if (13_300..13_400).contains(&wait.as_millis())), "{waits:?}");
        // A refused request takes nothing.
        assert!(matches!(waits[3], Grant::TooLong(wait) if wait.as_secs() == 20), "{waits:?}");
        assert!(matches!(bucket.apply(&(rates, take(1, HOUR)), now), Grant::After(wait) if wait.as_secs() == 20));
    }

    #[test]
    fn estimate_corrected_changes_the_next_wait() {
        let (mut bucket, now) = bucket();
        let rates = Rates { tokens_per_minute: Some(6_000), ..NONE };
        assert_eq!(bucket.apply(&(rates, take(600, HOUR)), now), Grant::After(Duration::ZERO));
        bucket.apply(&(rates, RateRequest::Correct { difference: -300 }), now);
        assert_eq!(bucket.apply(&(rates, take(300, HOUR)), now), Grant::After(Duration::ZERO));
        bucket.apply(&(rates, RateRequest::Correct { difference: 900 }), now);
        let Grant::After(wait) = bucket.apply(&(rates, take(0, HOUR)), now) else { unreachable!() };
        assert_eq!(wait, Duration::from_secs(10));
    }

    #[test]
    fn clock_behind_does_not_refill_twice() {
        let (mut bucket, now) = bucket();
        let rates = Rates { requests_per_minute: Some(10), ..NONE };
        let ahead = now.after(Duration::from_secs(7));
        bucket.apply(&(rates, take(0, HOUR)), ahead);
        bucket.apply(&(rates, take(0, HOUR)), now);
        let Grant::After(wait) = bucket.apply(&(rates, take(0, HOUR)), ahead) else { unreachable!() };
        assert!(wait >= Duration::from_secs(13), "{wait:?}");
    }
}
