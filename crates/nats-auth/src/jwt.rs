//! The JWTs of NATS: three parts in base64, signed by an nkey.
//!
//! The crates for this do not cover scoped signing keys, or are generated from a schema with a build of their own; what
//! is needed here are these two functions. The format is that of `nats-io/jwt` version 2.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::AuthError;

/// Header of every JWT of NATS.
const HEADER: &str = r#"{"typ":"JWT","alg":"ed25519-nkey"}"#;

/// The claims of a JWT; `N` is the part that depends on its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims<N> {
    /// Id of the JWT: a hash of the claims.
    #[serde(rename = "jti", default)]
    pub id: String,
    /// Time of issue, in seconds since 1970.
    #[serde(rename = "iat")]
    pub issued_at: i64,
    /// Time of expiry, in seconds since 1970; 0 if never.
    #[serde(rename = "exp", default, skip_serializing_if = "is_zero")]
    pub expires_at: i64,
    /// Public key that signed it.
    #[serde(rename = "iss", default)]
    pub issuer: String,
    /// Name of the subject for people.
    #[serde(default)]
    pub name: String,
    /// Public key that it is about.
    #[serde(rename = "sub")]
    pub subject: String,
    /// Claims about the subject and its permissions.
    pub nats: N,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(value: &i64) -> bool {
    *value == 0
}

/// Signs claims; issuer and id are filled in.
pub(crate) fn sign<N: Serialize>(mut claims: Claims<N>, key: &KeyPair) -> Result<String, AuthError> {
    let unusable = |problem: String| AuthError::Key { name: key.public_key(), problem };
    claims.issuer = key.public_key();
    claims.id = String::new();
    let text = |claims: &Claims<N>| serde_json::to_vec(claims).map_err(|error| unusable(error.to_string()));
    claims.id = URL_SAFE_NO_PAD.encode(Sha256::digest(text(&claims)?));
    let (header, payload) = (URL_SAFE_NO_PAD.encode(HEADER), URL_SAFE_NO_PAD.encode(text(&claims)?));
    let signed = format!("{header}.{payload}");
    let signature = key.sign(signed.as_bytes()).map_err(|error| unusable(format!("cannot sign: {error}")))?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

/// Reads the claims of a JWT and verifies that its issuer signed it. Whether the issuer is trusted is for the caller.
pub fn decode<N: DeserializeOwned>(token: &str) -> Result<Claims<N>, AuthError> {
    let malformed = |problem: &str| AuthError::Malformed { what: "the JWT".to_owned(), problem: problem.to_owned() };
    let token = token.trim();
    let (signed, signature) = token.rsplit_once('.').ok_or_else(|| malformed("it has no three parts"))?;
    let (_, payload) = signed.split_once('.').ok_or_else(|| malformed("it has no three parts"))?;
    let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|error| malformed(&error.to_string()))?;
    let claims: Claims<N> = serde_json::from_slice(&payload).map_err(|error| malformed(&error.to_string()))?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|error| malformed(&error.to_string()))?;
    let issuer = KeyPair::from_public_key(&claims.issuer).map_err(|_| malformed("its issuer is no public key"))?;
    issuer.verify(signed.as_bytes(), &signature).map_err(|_| malformed("its issuer did not sign it"))?;
    Ok(claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims<String> {
        let (id, issuer, name) = (String::new(), String::new(), "n".to_owned());
        Claims { id, issued_at: 7, expires_at: 0, issuer, name, subject: "U".to_owned(), nats: "x".to_owned() }
    }

    #[test]
    fn token_signed_is_decoded() {
        let key = KeyPair::new_account();
        let token = sign(claims(), &key).unwrap();
        let read: Claims<String> = decode(&token).unwrap();
        assert_eq!((read.issuer, read.issued_at, read.nats.as_str()), (key.public_key(), 7, "x"));
        assert_eq!(token.split('.').next(), Some("eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ"));
    }

    #[test]
    fn token_changed_is_refused() {
        let key = KeyPair::new_account();
        let token = sign(claims(), &key).unwrap();
        let other = sign(Claims { name: "m".to_owned(), ..claims() }, &key).unwrap();
        let part = |token: &str, n: usize| token.split('.').nth(n).unwrap().to_owned();
        let forged = format!("{}.{}.{}", part(&token, 0), part(&other, 1), part(&token, 2));
        for (bad, why) in [(forged.as_str(), "did not sign"), ("abc", "three parts"), ("a.b!.c", "JWT")] {
            let error = decode::<String>(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
