//! The access tokens that were verified, each with its grant, until they end.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use contract::Timestamp;
use ring::digest;

use super::super::grant::Grant;
use super::jwks::{KeySet, VerificationKey};

/// SHA-256 of a token. The tokens themselves are not kept.
pub(super) type TokenHash = [u8; 32];

/// Grants by token. At the limit, the one that ends first makes room.
#[derive(Debug)]
pub(super) struct VerifiedTokens {
    max: usize,
    by_hash: HashMap<TokenHash, VerifiedToken>,
    by_end: BTreeSet<(Timestamp, TokenHash)>,
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
        Self { max, by_hash: HashMap::new(), by_end: BTreeSet::new() }
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
        grant: Grant,
        now: Timestamp,
    ) -> Arc<Grant> {
        if let Some(known) = self.get(&hash) {
            return known;
        }
        while let Some((end, first)) = self.by_end.first().copied()
            && (end <= now || self.by_hash.len() >= self.max)
        {
            self.by_end.remove(&(end, first));
            self.by_hash.remove(&first);
        }
        // A grant without an end makes room at once.
        let (end, grant) = (grant.expires.unwrap_or(now), Arc::new(grant));
        self.by_end.insert((end, hash));
        self.by_hash.insert(hash, VerifiedToken { grant: grant.clone(), issuer, key, end });
        grant
    }

    /// Revokes the grants of an issuer whose keys are gone: that is how an issuer takes tokens back.
    pub(super) fn revoke_without_key(&mut self, issuer: usize, keys: &KeySet) {
        let Self { by_hash, by_end, .. } = self;
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
    use contract::TenantId;
    use serde_json::json;

    use super::*;

    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn keys(kids: &[&str]) -> KeySet {
        let keys: Vec<_> = kids.iter().map(|kid| json!({"kty": "OKP", "crv": "Ed25519", "x": X, "kid": kid})).collect();
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
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
            tokens.insert(*hash, 0, key.clone(), grant(end), now);
        }
        let held = |tokens: &VerifiedTokens| hashes.iter().map(|hash| tokens.get(hash).is_some()).collect::<Vec<_>>();
        assert_eq!(held(&tokens), [true, false, true, true, false]);
        tokens.insert(hashes[4], 0, key.clone(), grant(9_000), Timestamp::from_millis(5_000));
        assert_eq!(held(&tokens), [false, false, false, true, true]);
        let first = tokens.get(&hashes[4]).unwrap();
        let again = tokens.insert(hashes[4], 0, key, grant(9_000), now);
        assert!(Arc::ptr_eq(&first, &again), "a token keeps its grant");
        assert_eq!(tokens.by_end.len(), tokens.by_hash.len());
    }

    #[test]
    fn token_whose_key_is_gone_is_revoked() {
        let (mut tokens, now) = (VerifiedTokens::new(9), Timestamp::from_millis(1_000));
        let set = keys(&["a", "b"]);
        let grants: Vec<_> = [(0, 0), (0, 1), (1, 0)]
            .into_iter()
            .enumerate()
            .map(|(n, (issuer, key))| {
                tokens.insert(hash(&n.to_string()), issuer, set.keys()[key].clone(), grant(9_000), now)
            })
            .collect();
        tokens.revoke_without_key(0, &keys(&["b", "c"]));
        let revoked: Vec<bool> = grants.iter().map(|grant| grant.revoked.is_cancelled()).collect();
        assert_eq!(revoked, [true, false, false]);
        assert_eq!((tokens.by_hash.len(), tokens.by_end.len()), (2, 2));
    }
}
