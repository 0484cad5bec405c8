//! Signed tokens: JSON Web Signatures in the compact form, with asymmetric algorithms only (RFC 7515, RFC 7518).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

use crate::config::SignatureAlgorithm;

/// Bytes of a token.
pub(super) const TOKEN_BYTES_MAX: usize = 16 << 10;

impl SignatureAlgorithm {
    /// All of them, as the header of a token names them.
    const NAMES: [(&'static str, Self); 10] = [
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("PS384", Self::Ps384),
        ("PS512", Self::Ps512),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("EdDSA", Self::EdDsa),
        ("Ed25519", Self::EdDsa),
    ];

    /// Finds the algorithm that a header names.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, algorithm)| algorithm)
    }
}

/// A public key. Each of them fits the algorithms of its kind only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PublicKey {
    /// Modulus and exponent, without leading zeros.
    Rsa { n: Vec<u8>, e: Vec<u8> },
    /// The uncompressed point, 65 bytes.
    P256(Vec<u8>),
    /// The uncompressed point, 97 bytes.
    P384(Vec<u8>),
    /// The 32 bytes of the key.
    Ed25519(Vec<u8>),
}

impl PublicKey {
    /// Whether signatures of the algorithm are made with keys of this kind.
    pub(super) fn fits(&self, algorithm: SignatureAlgorithm) -> bool {
        use SignatureAlgorithm::{EdDsa, Es256, Es384, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
        match algorithm {
            Rs256 | Rs384 | Rs512 | Ps256 | Ps384 | Ps512 => matches!(self, Self::Rsa { .. }),
            Es256 => matches!(self, Self::P256(_)),
            Es384 => matches!(self, Self::P384(_)),
            EdDsa => matches!(self, Self::Ed25519(_)),
        }
    }

    /// Whether the signature of a message is good. A key of another kind verifies nothing.
    pub(super) fn verify(&self, algorithm: SignatureAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        use SignatureAlgorithm::{EdDsa, Es256, Es384, Ps256, Ps384, Ps512, Rs256, Rs384, Rs512};
        let rsa = |parameters: &'static RsaParameters| match self {
            Self::Rsa { n, e } => RsaPublicKeyComponents { n, e }.verify(parameters, message, signature).is_ok(),
            Self::P256(_) | Self::P384(_) | Self::Ed25519(_) => false,
        };
        let point = |point: &[u8], algorithm: &'static dyn signature::VerificationAlgorithm| {
            UnparsedPublicKey::new(algorithm, point).verify(message, signature).is_ok()
        };
        match (algorithm, self) {
            (Rs256, _) => rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            (Rs384, _) => rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            (Rs512, _) => rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            (Ps256, _) => rsa(&signature::RSA_PSS_2048_8192_SHA256),
            (Ps384, _) => rsa(&signature::RSA_PSS_2048_8192_SHA384),
            (Ps512, _) => rsa(&signature::RSA_PSS_2048_8192_SHA512),
            (Es256, Self::P256(key)) => point(key, &signature::ECDSA_P256_SHA256_FIXED),
            (Es384, Self::P384(key)) => point(key, &signature::ECDSA_P384_SHA384_FIXED),
            (EdDsa, Self::Ed25519(key)) => point(key, &signature::ED25519),
            (Es256 | Es384 | EdDsa, Self::Rsa { .. } | Self::P256(_) | Self::P384(_) | Self::Ed25519(_)) => false,
        }
    }
}

/// A token that was taken apart. Nothing of it is verified.
#[derive(Debug)]
pub(super) struct SignedToken<'a> {
    pub(super) algorithm: SignatureAlgorithm,
    /// Id of the key.
    pub(super) kid: Option<String>,
    pub(super) payload: Vec<u8>,
    /// The bytes that are signed.
    message: &'a [u8],
    signature: Vec<u8>,
}

/// The header, as far as it is used.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    /// Extensions that must be understood; none is.
    crit: Option<serde::de::IgnoredAny>,
}

impl<'a> SignedToken<'a> {
    /// Takes a token apart; the error repeats nothing of it.
    pub(super) fn parse(token: &'a str) -> Result<Self, String> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(format!("it has {} bytes, at most {TOKEN_BYTES_MAX} are allowed", token.len()));
        }
        let damaged = |part: &str| format!("its {part} is damaged");
        let (message, signature) = token.rsplit_once('.').ok_or_else(|| damaged("form"))?;
        let (header, payload) = message.split_once('.').ok_or_else(|| damaged("form"))?;
        // A further dot is no character of the encoding.
        let decode = |part, text| URL_SAFE_NO_PAD.decode(text).map_err(|_| damaged(part));
        let (payload, signature) = (decode("payload", payload)?, decode("signature", signature)?);
        let header = decode("header", header)?;
        let Header { alg, kid, typ, crit } = serde_json::from_slice(&header).map_err(|_| damaged("header"))?;
        let is_access_token = typ.as_deref().is_none_or(|typ| {
            let kind = typ.strip_prefix("application/").unwrap_or(typ);
            kind.eq_ignore_ascii_case("JWT") || kind.eq_ignore_ascii_case("at+jwt")
        });
        if !is_access_token {
            return Err("its header `typ` must be `JWT`, `at+jwt` or absent".to_owned());
        }
        if crit.is_some() {
            return Err("its header `crit` names extensions, and none is supported".to_owned());
        }
        let Some(algorithm) = SignatureAlgorithm::from_name(&alg) else {
            let names: Vec<&str> = SignatureAlgorithm::NAMES.iter().map(|(name, _)| *name).collect();
            return Err(format!("its algorithm is not one of {}", names.join(", ")));
        };
        Ok(Self { algorithm, kid, payload, message: message.as_bytes(), signature })
    }

    /// Whether a key made the signature.
    pub(super) fn is_signed_by(&self, key: &PublicKey) -> bool {
        key.verify(self.algorithm, self.message, &self.signature)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::jwks::KeySet;
    use super::*;

    /// Keys, each with a token: those of RFC 7515 (A.2, A.3) and RFC 8037 (A.4), then some that OpenSSL signed.
    const KNOWN: &str = include_str!("../../../tests/data/jws.json");

    fn known() -> Vec<(PublicKey, String)> {
        let known: Vec<(serde_json::Value, String)> = serde_json::from_str(KNOWN).unwrap();
        let parse = |key: serde_json::Value| {
            let set = KeySet::parse(json!({"keys": [key]}).to_string().as_bytes()).unwrap();
            set.keys()[0].key.clone()
        };
        known.into_iter().map(|(key, token)| (parse(key), token)).collect()
    }

    #[test]
    fn every_algorithm_verifies_a_known_token_and_no_damaged_one() {
        let mut algorithms = std::collections::BTreeSet::new();
        for (key, token) in known() {
            let parsed = SignedToken::parse(&token).unwrap();
            algorithms.insert(parsed.algorithm);
            assert!(key.fits(parsed.algorithm) && parsed.is_signed_by(&key), "{token}");
            for damage in [parsed.signature.len() - 1, 0, 20] {
                let mut damaged = SignedToken::parse(&token).unwrap();
                damaged.signature[damage] ^= 1;
                assert!(!damaged.is_signed_by(&key), "{token}");
            }
            let parts: Vec<&str> = token.split('.').collect();
            let other = [parts[0], &URL_SAFE_NO_PAD.encode(r#"{"iss":"eve"}"#), parts[2]].join(".");
            assert!(!SignedToken::parse(&other).unwrap().is_signed_by(&key), "{token}");
        }
        let all: std::collections::BTreeSet<_> = SignatureAlgorithm::NAMES.iter().map(|(_, known)| *known).collect();
        assert_eq!(algorithms, all);
    }

    #[test]
    fn ed25519_is_known_by_both_of_its_names() {
        for name in ["EdDSA", "Ed25519"] {
            assert_eq!(SignatureAlgorithm::from_name(name), Some(SignatureAlgorithm::EdDsa), "{name}");
            assert_eq!(serde_json::from_value::<SignatureAlgorithm>(json!(name)).unwrap(), SignatureAlgorithm::EdDsa);
        }
    }

    #[test]
    fn key_verifies_only_algorithms_of_its_kind() {
        for (key, token) in known() {
            let parsed = SignedToken::parse(&token).unwrap();
            for (_, algorithm) in SignatureAlgorithm::NAMES {
                let verified = key.verify(algorithm, parsed.message, &parsed.signature);
                assert_eq!(verified, algorithm == parsed.algorithm, "{algorithm:?} {token}");
                assert!(key.fits(algorithm) || !verified);
            }
        }
    }

    #[test]
    fn token_of_another_form_is_refused_before_its_signature_is_looked_at() {
        let token = |header: &str| format!("{}.e30.AAAA", URL_SAFE_NO_PAD.encode(header));
        let rows = [
            (token(r#"{"alg":"none"}"#), "algorithm"),
            (token(r#"{"alg":"HS256"}"#), "algorithm"),
            (token(r#"{"alg":"es256"}"#), "algorithm"),
            (token(r#"{"alg":"ES256K"}"#), "algorithm"),
            (token(r"{}"), "header"),
            (token(r#"{"alg":"ES256","alg":"none"}"#), "header"),
            (token(r#"{"alg":"ES256","typ":"dpop+jwt"}"#), "typ"),
            (token(r#"{"alg":"ES256","crit":["b64"],"b64":false}"#), "crit"),
            ("e30.e30".to_owned(), "form"),
            ("a.b".to_owned(), "form"),
            (token(r#"{"alg":"ES256"}"#) + ".e30", "payload"),
            (token(r#"{"alg":"ES256"}"#) + "=", "signature"),
            (token(r#"{"alg":"ES256"}"#) + "B", "signature"),
            (token(r#"{"alg":"ES256"}"#).replace("e30", "e3+"), "payload"),
            ("x".repeat(TOKEN_BYTES_MAX + 1), "bytes"),
        ];
        for (token, wanted) in rows {
            let refused = SignedToken::parse(&token).unwrap_err();
            assert!(refused.contains(wanted), "{wanted}: {refused}");
        }
        for typ in ["JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt"] {
            assert!(SignedToken::parse(&token(&json!({"alg": "ES256", "typ": typ}).to_string())).is_ok(), "{typ}");
        }
    }
}
