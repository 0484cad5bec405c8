//! The public keys of an issuer: a JSON Web Key Set (RFC 7517).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use super::jws::{PublicKey, SignedToken};
use crate::config::SignatureAlgorithm;

/// Keys of one set.
const KEYS_MAX: usize = 100;
/// Bytes of the shortest modulus that is accepted: 2 048 bits.
const MODULUS_BYTES_MIN: usize = 256;
/// Bytes of the longest modulus that is accepted: 8 192 bits.
const MODULUS_BYTES_MAX: usize = 1_024;

/// The keys of an issuer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KeySet {
    keys: Vec<Arc<VerificationKey>>,
}

/// A key of a set.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct VerificationKey {
    kid: Option<String>,
    /// The only algorithm of the key, where the set names one.
    algorithm: Option<SignatureAlgorithm>,
    pub(super) key: PublicKey,
}

/// A key as it is written. Of other kinds only `kty` is read.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

/// Result of a search for the key of a token.
#[derive(Debug)]
pub(super) enum KeyMatch {
    Found(Arc<VerificationKey>),
    /// A newer set may have it.
    UnknownKid,
    /// The key of this id is of another kind than the algorithm of the token.
    WrongKind,
}

impl KeySet {
    /// Parses a set. Keys that verify no supported signature are left out.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<Value>,
        }
        let document: Document = serde_json::from_slice(bytes).map_err(|error| format!("no set of keys: {error}"))?;
        if document.keys.len() > KEYS_MAX {
            return Err(format!("it has {} keys, at most {KEYS_MAX} are allowed", document.keys.len()));
        }
        let keys: Vec<_> = document.keys.into_iter().filter_map(VerificationKey::parse).map(Arc::new).collect();
        if keys.is_empty() {
            return Err("it has no key that verifies a supported signature".to_owned());
        }
        Ok(Self { keys })
    }

    /// Returns the keys that can be used.
    #[cfg(test)]
    pub(super) fn keys(&self) -> &[Arc<VerificationKey>] {
        &self.keys
    }

    /// Chooses the key of a token by its id. A token that names none is of the only key.
    pub(super) fn choose(&self, token: &SignedToken<'_>) -> KeyMatch {
        let Some(kid) = &token.kid else {
            return match &*self.keys {
                [only] if only.fits(token.algorithm) => KeyMatch::Found(only.clone()),
                _ => KeyMatch::WrongKind,
            };
        };
        let mut named = self.keys.iter().filter(|key| key.kid.as_ref() == Some(kid)).peekable();
        if named.peek().is_none() {
            return KeyMatch::UnknownKid;
        }
        named.find(|key| key.fits(token.algorithm)).map_or(KeyMatch::WrongKind, |key| KeyMatch::Found(key.clone()))
    }

    /// Whether the set has a key.
    pub(super) fn contains(&self, key: &VerificationKey) -> bool {
        self.keys.iter().any(|known| **known == *key)
    }
}

impl VerificationKey {
    fn parse(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let is_for_signatures = jwk.usage.as_deref().is_none_or(|usage| usage == "sig")
            && jwk.key_ops.as_ref().is_none_or(|operations| operations.iter().any(|name| name == "verify"));
        if !is_for_signatures {
            return None;
        }
        let algorithm = match &jwk.alg {
            Some(name) => Some(SignatureAlgorithm::from_name(name)?),
            None => None,
        };
        let key = jwk.to_public_key()?;
        algorithm.is_none_or(|algorithm| key.fits(algorithm)).then_some(Self { kid: jwk.kid, algorithm, key })
    }

    fn fits(&self, algorithm: SignatureAlgorithm) -> bool {
        self.algorithm.is_none_or(|only| only == algorithm) && self.key.fits(algorithm)
    }
}

impl Jwk {
    fn to_public_key(&self) -> Option<PublicKey> {
        let decode = |text: &Option<String>| URL_SAFE_NO_PAD.decode(text.as_ref()?).ok();
        let point = |bytes: usize| {
            let (x, y) = (decode(&self.x)?, decode(&self.y)?);
            (x.len() == bytes && y.len() == bytes).then(|| [&[4], &x[..], &y[..]].concat())
        };
        match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => {
                let (n, e) = (without_zeros(decode(&self.n)?), without_zeros(decode(&self.e)?));
                let has_size = (MODULUS_BYTES_MIN..=MODULUS_BYTES_MAX).contains(&n.len()) && !e.is_empty();
                has_size.then_some(PublicKey::Rsa { n, e })
            }
            ("EC", Some("P-256")) => point(32).map(PublicKey::P256),
            ("EC", Some("P-384")) => point(48).map(PublicKey::P384),
            ("OKP", Some("Ed25519")) => decode(&self.x).filter(|key| key.len() == 32).map(PublicKey::Ed25519),
            (_, _) => None,
        }
    }
}

fn without_zeros(bytes: Vec<u8>) -> Vec<u8> {
    bytes.into_iter().skip_while(|byte| *byte == 0).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn token(algorithm: &str, kid: Option<&str>) -> String {
        let header = URL_SAFE_NO_PAD.encode(json!({"alg": algorithm, "kid": kid}).to_string());
        format!("{header}.e30.AAAA")
    }

    #[test]
    fn keys_without_a_use_here_are_left_out() {
        let good = json!({"kty": "OKP", "crv": "Ed25519", "x": X, "kid": "a", "use": "sig", "alg": "EdDSA"});
        let short = URL_SAFE_NO_PAD.encode([0xFF; 128]);
        let rows = [
            json!({"kty": "OKP", "crv": "Ed25519", "x": X, "use": "enc"}),
            json!({"kty": "OKP", "crv": "Ed25519", "x": X, "key_ops": ["sign"]}),
            json!({"kty": "OKP", "crv": "Ed25519", "x": X, "alg": "ES256"}),
            json!({"kty": "OKP", "crv": "Ed25519", "x": X, "alg": "HS256"}),
            json!({"kty": "OKP", "crv": "X25519", "x": X}),
            json!({"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}),
            json!({"kty": "oct", "k": X}),
            json!({"kty": "EC", "crv": "P-256", "x": X, "y": "AA"}),
            json!({"kty": "EC", "crv": "P-521", "x": X, "y": X}),
            json!({"kty": "RSA", "n": short, "e": "AQAB"}),
            json!({"kty": "RSA", "n": short}),
            json!("x"),
        ];
        for row in rows {
            let both = KeySet::parse(json!({"keys": [row, good]}).to_string().as_bytes()).unwrap();
            assert_eq!(both.keys().len(), 1, "{row}");
            let refused = KeySet::parse(json!({"keys": [row]}).to_string().as_bytes()).unwrap_err();
            assert!(refused.contains("no key"), "{refused}");
        }
        let many = vec![good; KEYS_MAX + 1];
        assert!(KeySet::parse(json!({"keys": many}).to_string().as_bytes()).unwrap_err().contains("101"));
        assert!(KeySet::parse(b"{}").is_err());
    }

    #[test]
    fn key_is_chosen_by_its_id_and_must_fit_the_algorithm() {
        let key = |kid: &str| json!({"kty": "OKP", "crv": "Ed25519", "x": X, "kid": kid});
        let point = json!({"kty": "EC", "crv": "P-256", "x": X, "y": X, "kid": "a"});
        let set = |keys: Value| KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap();
        let (one, two, mixed) =
            (set(json!([key("a")])), set(json!([key("a"), key("b")])), set(json!([point, key("a")])));
        let name = |set: &KeySet, algorithm, kid| match set.choose(&SignedToken::parse(&token(algorithm, kid)).unwrap())
        {
            KeyMatch::Found(_) => "found",
            KeyMatch::UnknownKid => "unknown",
            KeyMatch::WrongKind => "kind",
        };
        let rows = [
            (&one, "EdDSA", Some("a"), "found"),
            (&one, "EdDSA", Some("c"), "unknown"),
            (&one, "ES256", Some("a"), "kind"),
            (&one, "EdDSA", None, "found"),
            (&one, "RS256", None, "kind"),
            (&two, "EdDSA", None, "kind"),
            (&mixed, "EdDSA", Some("a"), "found"),
            (&mixed, "ES256", Some("a"), "found"),
            (&mixed, "ES384", Some("a"), "kind"),
        ];
        for (set, algorithm, kid, wanted) in rows {
            assert_eq!(name(set, algorithm, kid), wanted, "{algorithm} {kid:?}");
        }
    }
}
