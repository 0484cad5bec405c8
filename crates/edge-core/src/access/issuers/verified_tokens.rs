//! The access tokens that were verified, each with its grant, until they end.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};

use contract::{TenantId, Timestamp};
use ring::digest;

use super::super::grant::{Grant, HolderLimits};
use super::jwks::{KeySet, VerificationKey};

/// SHA-256 of a token. The tokens themselves are not kept.
pub(super) type TokenHash = [u8; 32];

/// Grants by token. At the limit, the one that ends first makes room.
#[derive(Debug)]
pub(super) struct VerifiedTokens {
    max: usize,
    by_hash: HashMap<TokenHash, VerifiedToken>,
    by_end: BTreeSet<(Timestamp, TokenHash)>,
    /// Grants that made room while somebody used them.
    evicted: Vec<EvictedGrant>,
    /// Limits of the holders of the grants in use.
    limits: HashMap<Holder, Weak<HolderLimits>>,
}

/// Index of an issuer, tenant and subject.
type Holder = (usize, TenantId, String);

/// A grant whose token is not held any more. Its streams must end with its key all the same.
#[derive(Debug)]
struct EvictedGrant {
    grant: Weak<Grant>,
    issuer: usize,
    key: Arc<VerificationKey>,
}

#[derive(Debug)]
struct VerifiedToken {
    grant: Arc<Grant>,
    /// Index of the issuer.
    issuer: usize,
    key: Arc<VerificationKey>,
    end: Timestamp,
}

/// Hashes a token. The time of a look-up by hash says nothing about the tokens.
pub(super) fn hash(token: &str) -> TokenHash {
    let mut hash = TokenHash::default();
    hash.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    hash
}

impl VerifiedTokens {
    pub(super) fn new(max: usize) -> Self {
        Self { max, by_hash: HashMap::new(), by_end: BTreeSet::new(), evicted: Vec::new(), limits: HashMap::new() }
    }

    /// Finds the grant of a token.
    pub(super) fn get(&self, hash: &TokenHash) -> Option<Arc<Grant>> {
        self.by_hash.get(hash).map(|token| token.grant.clone())
    }

    /// Adds the grant of a token; returns that which it has already, where two requests verified it at once.
    pub(super) fn insert(
        &mut self,
        hash: TokenHash,
        issuer: usize,
        key: Arc<VerificationKey>,
        mut grant: Grant,
        new_limits: impl FnOnce() -> Arc<HolderLimits>,
        now: Timestamp,
    ) -> Arc<Grant> {
        if let Some(known) = self.get(&hash) {
            return known;
        }
        grant.limits = Some(self.limits_of((issuer, grant.tenant.clone(), grant.subject.clone()), new_limits));
        while let Some((end, first)) = self.by_end.first().copied()
            && (end <= now || self.by_hash.len() >= self.max)
        {
            self.by_end.remove(&(end, first));
            if let Some(VerifiedToken { grant, issuer, key, .. }) = self.by_hash.remove(&first) {
                self.evicted.push(EvictedGrant { grant: Arc::downgrade(&grant), issuer, key });
            }
            self.evicted.retain(|evicted| evicted.grant.strong_count() > 0);
        }
        // A grant without an end makes room at once.
        let (end, grant) = (grant.expires.unwrap_or(now), Arc::new(grant));
        self.by_end.insert((end, hash));
        self.by_hash.insert(hash, VerifiedToken { grant: grant.clone(), issuer, key, end });
        grant
    }

    /// Returns what a holder is held to. A new token of the holder changes nothing about it.
    fn limits_of(&mut self, holder: Holder, new_limits: impl FnOnce() -> Arc<HolderLimits>) -> Arc<HolderLimits> {
        if let Some(known) = self.limits.get(&holder).and_then(Weak::upgrade) {
            return known;
        }
        if self.limits.len() >= self.max {
            self.limits.retain(|_, limits| limits.strong_count() > 0);
        }
        let limits = new_limits();
        self.limits.insert(holder, Arc::downgrade(&limits));
        limits
    }

    /// Revokes the grants of an issuer whose keys are gone: that is how an issuer takes tokens back.
    pub(super) fn revoke_without_key(&mut self, issuer: usize, keys: &KeySet) {
        let Self { by_hash, by_end, evicted, .. } = self;
        evicted.retain(|EvictedGrant { grant, issuer: of, key }| {
            let is_kept = *of != issuer || keys.contains(key);
            if !is_kept && let Some(grant) = grant.upgrade() {
                grant.revoked.cancel();
            }
            is_kept
        });
        by_hash.retain(|hash, token| {
            let is_kept = token.issuer != issuer || keys.contains(&token.key);
            if !is_kept {
                token.grant.revoked.cancel();
                by_end.remove(&(token.end, *hash));
            }
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use service::connections::ConnectionLimits;

    use super::*;

    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn keys(kids: &[&str]) -> KeySet {
        let keys: Vec<_> = kids.iter().map(|kid| json!({"kty": "OKP", "crv": "Ed25519", "x": X, "kid": kid})).collect();
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
    }

    fn limits() -> Arc<HolderLimits> {
        HolderLimits::new(&ConnectionLimits::default(), None)
    }

    fn grant(end: u64) -> Grant {
        Grant { expires: Some(Timestamp::from_millis(end)), ..Grant::full(TenantId::default(), "ann") }
    }

    #[test]
    fn token_that_ends_first_makes_room() {
        let (mut tokens, now) = (VerifiedTokens::new(3), Timestamp::from_millis(1_000));
        let key = keys(&["a"]).keys()[0].clone();
        let hashes: Vec<TokenHash> = (0..5).map(|n| hash(&format!("token {n}"))).collect();
        for (hash, end) in hashes.iter().zip([5_000, 3_000, 4_000, 9_000]) {
            tokens.insert(*hash, 0, key.clone(), grant(end), limits, now);
        }
        let held = |tokens: &VerifiedTokens| hashes.iter().map(|hash| tokens.get(hash).is_some()).collect::<Vec<_>>();
        assert_eq!(held(&tokens), [true, false, true, true, false]);
        tokens.insert(hashes[4], 0, key.clone(), grant(9_000), limits, Timestamp::from_millis(5_000));
        assert_eq!(held(&tokens), [false, false, false, true, true]);
        let first = tokens.get(&hashes[4]).unwrap();
        let again = tokens.insert(hashes[4], 0, key, grant(9_000), limits, now);
        assert!(Arc::ptr_eq(&first, &again), "a token keeps its grant");
        assert_eq!(tokens.by_end.len(), tokens.by_hash.len());
    }

    #[test]
    fn new_token_of_a_holder_has_the_limits_of_the_earlier_one() {
        let (mut tokens, now) = (VerifiedTokens::new(3), Timestamp::from_millis(1_000));
        let key = keys(&["a"]).keys()[0].clone();
        let mut limits_of = |token: &str, issuer, subject: &str| {
            let grant = Grant { subject: subject.to_owned(), ..grant(9_000) };
            tokens.insert(hash(token), issuer, key.clone(), grant, limits, now).limits.clone().unwrap()
        };
        let first = limits_of("one", 0, "ann");
        assert!(Arc::ptr_eq(&first, &limits_of("two", 0, "ann")));
        assert!(!Arc::ptr_eq(&first, &limits_of("three", 0, "bob")));
        assert!(!Arc::ptr_eq(&first, &limits_of("four", 1, "ann")));
    }

    #[test]
    fn grant_in_use_whose_token_made_room_is_revoked_with_its_key() {
        let (mut tokens, now) = (VerifiedTokens::new(1), Timestamp::from_millis(1_000));
        let key = keys(&["a"]).keys()[0].clone();
        let used = tokens.insert(hash("one"), 0, key.clone(), grant(3_000), limits, now);
        for other in ["two", "three"] {
            tokens.insert(hash(other), 0, key.clone(), grant(9_000), limits, now);
        }
        assert!(tokens.get(&hash("one")).is_none());
        assert_eq!(tokens.evicted.len(), 1, "only what somebody uses");
        tokens.revoke_without_key(0, &keys(&["a"]));
        assert!(!used.revoked.is_cancelled());
        tokens.revoke_without_key(0, &keys(&["b"]));
        assert!(used.revoked.is_cancelled());
    }

    #[test]
    fn token_whose_key_is_gone_is_revoked() {
        let (mut tokens, now) = (VerifiedTokens::new(9), Timestamp::from_millis(1_000));
        let set = keys(&["a", "b"]);
        let grants: Vec<_> = [(0, 0), (0, 1), (1, 0)]
            .into_iter()
            .enumerate()
            .map(|(n, (issuer, key))| {
                tokens.insert(hash(&n.to_string()), issuer, set.keys()[key].clone(), grant(9_000), limits, now)
            })
            .collect();
        tokens.revoke_without_key(0, &keys(&["b", "c"]));
        let revoked: Vec<bool> = grants.iter().map(|grant| grant.revoked.is_cancelled()).collect();
        assert_eq!(revoked, [true, false, false]);
        assert_eq!((tokens.by_hash.len(), tokens.by_end.len()), (2, 2));
    }
}
