//! Cache of replies, by the bytes of their requests.
//!
//! A reply depends on its request and the catalog only, and each catalog has its own cache: after a reload of the files
//! the cache is empty. Bytes are compared and not fields, since comparing forty tools costs more than composing with
//! them. Two requests with the same meaning and different bytes have two entries.

use std::hash::{Hash, Hasher};

use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

/// Bytes of all requests and replies in the cache of one catalog.
pub const REPLIES_BYTES_MAX: usize = 16 << 20;
/// Replies for which the cache makes room at first.
const REPLIES_EXPECTED: usize = 16;
/// Bytes at each end of a request that are hashed.
const PROBE_BYTES: usize = 256;

/// The serialised reply, and what its span records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CachedReply {
    pub(crate) body: Bytes,
    pub(crate) agent: String,
    pub(crate) fingerprint: String,
    pub(crate) prompt_bytes: usize,
    pub(crate) components: usize,
}

/// Cache of replies.
#[derive(Debug)]
pub(crate) struct ReplyCache(Cache<RequestKey, CachedReply, ReplyBytes>);

#[derive(Debug, Clone)]
struct ReplyBytes;

impl Weighter<RequestKey, CachedReply> for ReplyBytes {
    fn weight(&self, request: &RequestKey, reply: &CachedReply) -> u64 {
        (request.0.len() + reply.body.len()) as u64
    }
}

impl Default for ReplyCache {
    fn default() -> Self {
        Self(Cache::with_weighter(REPLIES_EXPECTED, REPLIES_BYTES_MAX as u64, ReplyBytes))
    }
}

/// Bytes of a request. Only the length and the ends are hashed, where agent, features and parameters are, since hashing
/// all of it is slower than the comparison of all bytes.
#[derive(Debug, PartialEq, Eq)]
struct RequestKey(Bytes);

impl Hash for RequestKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let bytes = &self.0;
        bytes.len().hash(state);
        bytes.get(..PROBE_BYTES).unwrap_or(bytes).hash(state);
        bytes.get(bytes.len().saturating_sub(PROBE_BYTES)..).unwrap_or(bytes).hash(state);
    }
}

impl ReplyCache {
    /// Returns the reply to a request of exactly these bytes.
    pub(crate) fn get(&self, request: &Bytes) -> Option<CachedReply> {
        self.0.get(&RequestKey(request.clone()))
    }

    /// Adds a reply, unless it is larger than the whole cache.
    pub(crate) fn put(&self, request: &Bytes, reply: CachedReply) {
        let before = self.0.weight();
        // A copy, since the message is part of a larger network buffer.
        self.0.insert(RequestKey(Bytes::copy_from_slice(request)), reply);
        report_bytes(before, self.0.weight());
    }
}

impl Drop for ReplyCache {
    /// Subtracts the cache from the metric: each catalog has its own cache.
    fn drop(&mut self) {
        report_bytes(self.0.weight(), 0);
    }
}

/// Adds the change of the cache to the metric.
fn report_bytes(before: u64, now: u64) {
    let bytes = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
    telemetry::metric::cache_bytes("answers", bytes(now) - bytes(before));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(body: &str) -> CachedReply {
        let (agent, fingerprint) = (String::new(), String::new());
        CachedReply {
            body: Bytes::copy_from_slice(body.as_bytes()),
            agent,
            fingerprint,
            prompt_bytes: 0,
            components: 0,
        }
    }

    #[test]
    fn request_with_other_bytes_has_another_reply() {
        let cache = ReplyCache::default();
        let text = "x".repeat(3 * PROBE_BYTES);
        let change_byte = |position: usize| {
            let mut other = text.clone().into_bytes();
            other[position] = b'y';
            Bytes::from(other)
        };
        cache.put(&Bytes::from(text.clone()), reply("same"));
        assert_eq!(cache.get(&Bytes::from(text.clone())), Some(reply("same")));
        // At both ends, and in the middle, which is not hashed.
        for position in [0, text.len() - 1, text.len() / 2] {
            assert_eq!(cache.get(&change_byte(position)), None, "{position}");
            cache.put(&change_byte(position), reply("other"));
        }
        assert_eq!(cache.get(&Bytes::from(text.clone())), Some(reply("same")));
        assert_eq!(cache.get(&change_byte(text.len() / 2)), Some(reply("other")));
        assert_eq!(cache.get(&Bytes::from(text[1..].to_owned())), None);
    }

    #[test]
    fn cache_over_its_limits_is_bounded() {
        let cache = ReplyCache::default();
        let request = |n: usize| Bytes::from(n.to_string());
        let large = "x".repeat(REPLIES_BYTES_MAX / 3);
        for n in 0..10 {
            cache.put(&request(n), reply(&large));
            assert!(cache.0.weight() <= REPLIES_BYTES_MAX as u64, "{}", cache.0.weight());
        }
        assert_eq!(cache.0.len(), 2);
        cache.put(&request(99), reply(&large.repeat(4)));
        assert_eq!(cache.get(&request(99)), None);
    }
}
