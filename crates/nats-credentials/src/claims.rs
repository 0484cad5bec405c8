//! Claims that a client reads in the JWT of its user. Only nats-server verifies the signature.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The claims of a user's JWT.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct UserClaims {
    /// Public key of the user, `U…`; revocations name it.
    #[serde(rename = "sub")]
    pub public_key: String,
    /// Public key that signed the JWT: the account, or one of its signing keys.
    #[serde(rename = "iss")]
    pub issuer: String,
    /// Name of the user, from which its inbox prefix is made. ailoop issues users under the names of their roles.
    #[serde(default)]
    pub name: String,
    /// Time of issue, in seconds since 1970.
    #[serde(rename = "iat", default)]
    pub issued_at: i64,
    /// Time of expiry, in seconds since 1970; 0 if it never expires.
    #[serde(rename = "exp", default)]
    pub expires_at: i64,
    /// Claims that only NATS has.
    pub nats: NatsClaims,
}

/// The part `nats` of the claims.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct NatsClaims {
    /// Public key of the account, if a signing key of it is the issuer.
    #[serde(default)]
    pub issuer_account: String,
    /// `user` in the JWT of a user.
    #[serde(rename = "type", default)]
    pub kind: String,
}

impl UserClaims {
    /// Reads the claims of a JWT; `None` if it is not the JWT of a NATS user.
    pub fn decode(jwt: &str) -> Option<Self> {
        let payload = jwt.split('.').nth(1)?;
        let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
        let claims: Self = serde_json::from_slice(&payload).ok()?;
        (claims.nats.kind == "user").then_some(claims)
    }

    /// Public key of the account that the user belongs to.
    pub fn account(&self) -> &str {
        if self.nats.issuer_account.is_empty() { &self.issuer } else { &self.nats.issuer_account }
    }

    /// Time of expiry, in RFC 3339.
    pub fn expires_at_text(&self) -> String {
        format_time(self.expires_at)
    }

    /// Whether it has expired at `now`, in seconds since 1970.
    pub fn is_expired(&self, now: i64) -> bool {
        self.expires_at > 0 && self.expires_at <= now
    }
}

/// A time in seconds since 1970 as RFC 3339.
pub(crate) fn format_time(seconds: i64) -> String {
    let time = OffsetDateTime::from_unix_timestamp(seconds).ok();
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_else(|| format!("second {seconds} since 1970"))
}
