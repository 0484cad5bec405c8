//! Cache of replies, by the bytes of their requests.
//!
//! A reply depends on its request and the catalog only, and each catalog has its own cache: after a reload of the files
//! the cache is empty. Bytes are compared and not fields, since comparing forty tools costs more than composing with
//! them. Two requests with the same meaning and different bytes have two entries.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Replies in the cache of one catalog. A further one clears the cache first.
pub const REPLIES_MAX: usize = 256;
/// Bytes of all requests and replies in the cache. A reply over this clears the cache first.
pub const REPLIES_BYTES_MAX: usize = 16 << 20;
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

/// Cache of replies. Its blocking lock is held for a look-up only.
#[derive(Debug, Default)]
pub(crate) struct ReplyCache(Mutex<CacheEntries>);

#[derive(Debug, Default)]
struct CacheEntries {
    by_request: HashMap<RequestKey, CachedReply>,
    bytes: usize,
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
        self.lock().by_request.get(&RequestKey(request.clone())).cloned()
    }

    /// Adds a reply, unless it is larger than the whole cache.
    pub(crate) fn put(&self, request: &Bytes, reply: CachedReply) {
        let size = request.len() + reply.body.len();
        if size > REPLIES_BYTES_MAX {
            return;
        }
        let mut entries = self.lock();
        let before = entries.bytes;
        if entries.by_request.len() >= REPLIES_MAX || entries.bytes + size > REPLIES_BYTES_MAX {
            *entries = CacheEntries::default();
        }
        // A copy, since the message is part of a larger network buffer.
        let request = RequestKey(Bytes::copy_from_slice(request));
        if entries.by_request.insert(request, reply).is_none() {
            entries.bytes += size;
        }
        report_bytes(before, entries.bytes);
    }

    fn lock(&self) -> MutexGuard<'_, CacheEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ReplyCache {
    /// Subtracts the cache from the metric: each catalog has its own cache.
    fn drop(&mut self) {
        report_bytes(self.lock().bytes, 0);
    }
}

/// Adds the change of the cache to the metric.
fn report_bytes(before: usize, now: usize) {
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
        for n in 0..10 * REPLIES_MAX {
            cache.put(&request(n), reply("a"));
            assert_eq!(cache.get(&request(n)), Some(reply("a")));
            assert!(cache.lock().by_request.len() <= REPLIES_MAX);
        }
        let large = "x".repeat(REPLIES_BYTES_MAX / 3);
        for n in 0..10 {
            cache.put(&request(n), reply(&large));
            cache.put(&request(n), reply(&large));
            let entries = cache.lock();
            let actual_bytes: usize =
                entries.by_request.iter().map(|(request, reply)| request.0.len() + reply.body.len()).sum();
            assert!(
                entries.bytes <= REPLIES_BYTES_MAX && entries.bytes == actual_bytes,
                "{} {actual_bytes}",
                entries.bytes
            );
        }
        cache.put(&request(99), reply(&large.repeat(4)));
        assert_eq!(cache.get(&request(99)), None);
    }
}
