//! The rates of one provider's key: how many requests and tokens may be asked for, and when.
//!
//! A tenth of a minute's worth may be asked for at once, nine tenths flow in over a minute: no minute sees more than the
//! limit. Whoever asks for more than there is now gets a place in line at once, so that nobody has to come again.

use std::time::Duration;

use contract::Timestamp;
use serde::{Deserialize, Serialize};
use service::models::Rates;

use super::entry::SharedEntry;

/// Of a minute's worth, what may be asked for at once.
const BURST: f64 = 0.1;
const MINUTE_MS: f64 = 60_000.0;

/// What is left now, as all gateways see it. Below zero: promised to those in line.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct TokenBucket {
    requests: f64,
    tokens: f64,
    at: Timestamp,
}

/// What is asked of a level.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RateRequest {
    /// A request of so many tokens.
    Take {
        /// Tokens of the request and, as far as one can know, of its reply.
        tokens: u64,
        /// The longest wait that is of use.
        max_wait: Duration,
    },
    /// A reply has come: tokens were more than was thought, or fewer.
    Correct {
        /// By how many.
        difference: i64,
    },
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grant {
    /// One may ask after so long; the place in line is kept.
    After(Duration),
    /// It would take longer than is of use: so long.
    TooLong(Duration),
}

impl SharedEntry for TokenBucket {
    type Request = (Rates, RateRequest);
    type Response = Grant;

    fn new(now: Timestamp) -> Self {
        // More than any limit: it is cut to that when the limit is known.
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
    /// Lets flow in what came since the last look. A clock that is behind changes nothing.
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
            // One that is larger than a burst may go when that is full, and is paid for afterwards.
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

    /// Asks as soon as it may, as long as there is a minute left; tells how many went.
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
    fn no_minute_sees_more_than_the_limit() {
        for limit in [1, 7, 60, 5_000] {
            let rates = Rates { requests_per_minute: Some(limit), ..NONE };
            let granted = in_a_minute(rates, 1_000);
            assert!(granted <= limit.max(1) && granted + 1 >= limit, "{granted} of {limit}");
        }
        assert_eq!(in_a_minute(Rates { tokens_per_minute: Some(100_000), ..NONE }, 10_000), 10);
        // One that is larger than what may be asked for at once goes, and the next one waits for all of it.
        assert_eq!(in_a_minute(Rates { tokens_per_minute: Some(10_000), ..NONE }, 30_000), 1);
    }

    #[test]
    fn those_who_wait_have_their_place_in_line() {
        let (mut bucket, now) = bucket();
        let rates = Rates { requests_per_minute: Some(10), ..NONE };
        let waits: Vec<Grant> = (0..4).map(|_| bucket.apply(&(rates, take(1, Duration::from_secs(15))), now)).collect();
        let after = |ms| Grant::After(Duration::from_millis(ms));
        assert_eq!(waits[0], after(0));
        assert!(matches!(waits[1], Grant::After(wait) if (6_600..6_700).contains(&wait.as_millis())), "{waits:?}");
        assert!(matches!(waits[2], Grant::After(wait) if (13_300..13_400).contains(&wait.as_millis())), "{waits:?}");
        // A place that is refused is not taken.
        assert!(matches!(waits[3], Grant::TooLong(wait) if wait.as_secs() == 20), "{waits:?}");
        assert!(matches!(bucket.apply(&(rates, take(1, HOUR)), now), Grant::After(wait) if wait.as_secs() == 20));
    }

    #[test]
    fn what_a_reply_really_took_is_corrected() {
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
    fn clocks_that_differ_let_nothing_flow_twice() {
        let (mut bucket, now) = bucket();
        let rates = Rates { requests_per_minute: Some(10), ..NONE };
        let ahead = now.after(Duration::from_secs(7));
        bucket.apply(&(rates, take(0, HOUR)), ahead);
        bucket.apply(&(rates, take(0, HOUR)), now);
        let Grant::After(wait) = bucket.apply(&(rates, take(0, HOUR)), ahead) else { unreachable!() };
        assert!(wait >= Duration::from_secs(13), "{wait:?}");
    }
}
