//! Ids for requests that SDKs repeat without an idempotency key. A repeated request must not begin a second turn.

use std::time::Duration;

use axum::http::HeaderMap;
use contract::Timestamp;
use contract::tool::sha256_hex;

/// How long a request may be repeated.
const WINDOW: Duration = Duration::from_mins(15);
/// Requests with the same body within [`WINDOW`] that are distinguished.
const SAME_MAX: u32 = 32;

/// What a request says about being a repetition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestIdentity {
    digest: String,
    /// Numbers of the current window and the one before.
    windows: [u128; 2],
    pub(super) is_retry: bool,
    /// Whether the request names a key of its own.
    has_key: bool,
}

impl RequestIdentity {
    /// Reads the identity of a request of a caller. SDKs count repetitions in a header.
    pub(crate) fn new(caller: &str, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Self {
        let explicit = headers.get("idempotency-key").map_or(&[][..], |value| value.as_bytes());
        let count = headers.get("x-stainless-retry-count").and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
        let digest = if explicit.is_empty() {
            sha256_hex(&[caller.as_bytes(), b"\0", body].concat())
        } else {
            sha256_hex(&[caller.as_bytes(), b"\0key\0", explicit].concat())
        };
        let window = u128::from(now.as_millis()) / WINDOW.as_millis();
        Self {
            digest,
            windows: [window, window.saturating_sub(1)],
            is_retry: count.is_some_and(|count| count > 0) || !explicit.is_empty(),
            has_key: !explicit.is_empty(),
        }
    }

    /// Makes the identity of a request to which its client gave an id that is unique for the caller, for all time.
    pub(crate) fn of_id(caller: &str, id: &str) -> Self {
        let digest = sha256_hex(&[caller.as_bytes(), b"\0id\0", id.as_bytes()].concat());
        Self { digest, windows: [0, 0], is_retry: true, has_key: false }
    }

    /// Whether the request may have been sent before.
    pub(crate) fn is_retry(&self) -> bool {
        self.is_retry
    }

    /// Returns the id of a request that says nothing of being a repetition, unless an equal one came before.
    pub(super) fn likely_id(&self) -> Option<String> {
        (!self.is_retry).then(|| self.id(self.windows[0], 0))
    }

    /// Returns the ids that the request has if no other one is equal to it.
    pub(super) fn first_ids(&self) -> impl Iterator<Item = String> {
        self.windows.into_iter().map(|window| self.id(window, 0))
    }

    /// Returns the ids of requests with the same body, by window: the current one first, and in it the earliest first.
    pub(super) fn ids(&self) -> [impl Iterator<Item = String>; 2] {
        self.windows.map(|window| (0..SAME_MAX).map(move |index| self.id(window, index)))
    }

    /// Returns the id of the command of a request that names a key: the same for each repetition.
    pub(crate) fn command_id(&self) -> Option<String> {
        self.has_key.then(|| format!("key-{}", &self.digest[..32]))
    }

    fn id(&self, window: u128, index: u32) -> String {
        let digest = sha256_hex(format!("{}.{window}.{index}", self.digest).as_bytes());
        format!("chat-{}", &digest[..32])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(caller: &str, headers: &[(&'static str, &str)], body: &str, minute: u64) -> RequestIdentity {
        let headers = headers.iter().map(|(name, value)| {
            (axum::http::HeaderName::from_static(name), axum::http::HeaderValue::from_str(value).unwrap())
        });
        let now = Timestamp::default().after(Duration::from_mins(minute));
        RequestIdentity::new(caller, &headers.collect(), body.as_bytes(), now)
    }

    #[test]
    fn repeated_request_has_the_ids_of_the_first_one_also_in_the_next_window() {
        let first = identity("a", &[], "x", 14);
        let again = identity("a", &[("x-stainless-retry-count", "1")], "x", 16);
        assert!(!first.is_retry && again.is_retry);
        let ids = |identity: &RequestIdentity| identity.ids().map(Iterator::collect::<Vec<_>>);
        assert_eq!(ids(&first)[0], ids(&again)[1]);
        for other in [identity("b", &[], "x", 14), identity("a", &[], "y", 14), identity("a", &[], "x", 60)] {
            assert!(ids(&other).concat().iter().all(|id| !ids(&first).concat().contains(id)));
        }
    }

    #[test]
    fn identity_of_an_id_is_the_same_at_any_time_and_another_for_another_caller() {
        let first = |caller, id| {
            let identity = RequestIdentity::of_id(caller, id);
            assert!(identity.is_retry);
            identity.ids().map(|mut ids| ids.next().unwrap())
        };
        assert_eq!(first("a", "m"), first("a", "m"));
        assert_eq!(first("a", "m")[0], first("a", "m")[1]);
        assert_ne!(first("a", "m"), first("b", "m"));
        assert_ne!(first("a", "m"), first("a", "n"));
    }

    #[test]
    fn idempotency_key_counts_more_than_the_body() {
        let keyed = |body| identity("a", &[("idempotency-key", "k")], body, 1);
        assert_eq!(keyed("x"), keyed("y"));
        assert!(keyed("x").is_retry);
        assert!(keyed("x").command_id().is_some() && identity("a", &[], "x", 1).command_id().is_none());
    }
}
