//! The format of the file: two blocks between lines of dashes, as every NATS client reads it.

use nkeys::{KeyPair, KeyPairType};

use crate::UserClaims;

/// A credential: the JWT of a user, and the key that proves that the bearer owns it.
pub struct Credentials {
    /// The JWT, which nats-server verifies.
    pub jwt: String,
    /// The key, whose seed never leaves the process.
    pub key: KeyPair,
    /// Claims in the JWT.
    pub claims: UserClaims,
}

/// Reason why a text is not a credentials file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// No block with a JWT.
    #[error("it has no block `BEGIN NATS USER JWT`")]
    NoJwt,
    /// No block with a seed.
    #[error("it has no block `BEGIN USER NKEY SEED`")]
    NoSeed,
    /// The block is not the JWT of a user.
    #[error("its first block is not the JWT of a NATS user")]
    BadJwt,
    /// The block is not a seed, perhaps cut short.
    #[error("its second block is not the seed of a user's key")]
    BadSeed,
    /// The seed belongs to another JWT.
    #[error("its seed does not belong to its JWT")]
    Mismatch,
}

impl Credentials {
    /// Parses the text of a file.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let jwt = block(text, "NATS USER JWT").ok_or(ParseError::NoJwt)?;
        let seed = block(text, "USER NKEY SEED").ok_or(ParseError::NoSeed)?;
        let claims = UserClaims::decode(jwt).ok_or(ParseError::BadJwt)?;
        let key = KeyPair::from_seed(seed).map_err(|_| ParseError::BadSeed)?;
        if key.key_pair_type() != KeyPairType::User {
            return Err(ParseError::BadSeed);
        }
        if key.public_key() != claims.public_key {
            return Err(ParseError::Mismatch);
        }
        Ok(Self { jwt: jwt.to_owned(), key, claims })
    }

    /// Formats a file for a JWT and the seed of its key.
    pub fn format(jwt: &str, seed: &str) -> String {
        format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             The seed below proves the identity of this user: treat the file as a password.\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    }
}

impl std::fmt::Debug for Credentials {
    /// Shows who the user is, never the seed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("claims", &self.claims).finish_non_exhaustive()
    }
}

/// The line between the markers of a block.
fn block<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().map(str::trim);
    let begin = format!("BEGIN {name}");
    lines.find(|line| line.starts_with("---") && line.contains(&begin))?;
    lines.find(|line| !line.is_empty()).filter(|line| !line.starts_with("---"))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    fn jwt(public_key: &str, kind: &str) -> String {
        let claims = format!(
            r#"{{"sub":"{public_key}","iss":"A1","name":"edge","iat":7,"nats":{{"issuer_account":"A2","type":"{kind}"}}}}"#
        );
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[test]
    fn file_formatted_is_parsed() {
        let key = KeyPair::new_user();
        let text = Credentials::format(&jwt(&key.public_key(), "user"), &key.seed().unwrap());
        for text in [text.clone(), text.replace('\n', "\r\n"), format!("\n{text}\n\n")] {
            let credentials = Credentials::parse(&text).unwrap();
            assert_eq!(credentials.claims.public_key, key.public_key());
            assert_eq!((credentials.claims.name.as_str(), credentials.claims.account()), ("edge", "A2"));
            assert!(!credentials.claims.is_expired(i64::MAX), "it has no end");
            assert!(!format!("{credentials:?}").contains(&key.seed().unwrap()), "a seed is never shown");
        }
    }

    #[test]
    fn file_damaged_is_refused_with_the_part() {
        let (key, other) = (KeyPair::new_user(), KeyPair::new_user());
        let (token, seed) = (jwt(&key.public_key(), "user"), key.seed().unwrap());
        let account = KeyPair::new_account().seed().unwrap();
        for (text, why) in [
            (String::new(), ParseError::NoJwt),
            (format!("-----BEGIN NATS USER JWT-----\n{token}\n"), ParseError::NoSeed),
            (Credentials::format("", &seed), ParseError::NoJwt),
            (Credentials::format("a.b.c", &seed), ParseError::BadJwt),
            (Credentials::format(&jwt(&key.public_key(), "account"), &seed), ParseError::BadJwt),
            (Credentials::format(&token, &seed[..20]), ParseError::BadSeed),
            (Credentials::format(&token, &account), ParseError::BadSeed),
            (Credentials::format(&token, &other.seed().unwrap()), ParseError::Mismatch),
        ] {
            assert_eq!(Credentials::parse(&text).unwrap_err(), why, "{text}");
        }
    }
}
