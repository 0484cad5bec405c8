//! `edge.issuers`: whose access tokens are accepted, and what their claims grant.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::PathBuf;

use contract::TenantId;
use contract::limits::ISSUERS_MAX;
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;

/// Names of an edge at one issuer.
const AUDIENCES_MAX: usize = 8;
/// Bytes of a setting that is compared with a token.
const TEXT_BYTES_MAX: usize = 2_048;

/// An `OpenID` Connect issuer whose access tokens are accepted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "issuer")]
pub struct IssuerConfig {
    /// URL of the issuer, exactly as the claim `iss` of its tokens has it.
    pub issuer: String,
    /// The name of this edge at the issuer, or a list of up to 8 of its names. The claim `aud` must contain one of
    /// them.
    #[serde(deserialize_with = "one_or_several")]
    #[schemars(with = "OneOrSeveral")]
    pub audience: Vec<String>,
    /// URL of the issuer's keys; by default the one that `<issuer>/.well-known/openid-configuration` names.
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// File of the issuer's keys, in place of a URL. It is read again every 2 s.
    #[serde(default)]
    pub jwks_file: Option<PathBuf>,
    /// The tenant of all tokens of the issuer; that of the edge where none is given.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub tenant: Option<TenantId>,
    /// Claim with the tenant of a token, in place of `tenant`. A token without it is refused.
    #[serde(default)]
    pub tenant_claim: Option<String>,
    /// Claim with the name of the holder in the log; `sub`.
    #[serde(default = "default_subject_claim")]
    pub subject_claim: String,
    /// Claim with the scopes, as a list or as words with spaces between them; `scope`.
    #[serde(default = "default_scope_claim")]
    pub scope_claim: String,
    /// Beginning of the scopes that concern ailoop, before `run`, `converse`, `observe`, `approve`, `administer` or
    /// `operate`; `ailoop:`.
    #[serde(default = "default_scope_prefix")]
    pub scope_prefix: String,
    /// Claim with the agents whose sessions a token reaches. A token without it is refused; all agents where no claim is
    /// given.
    #[serde(default)]
    pub agents_claim: Option<String>,
    /// Requests in a minute of one holder, on each replica of the edge.
    #[serde(default)]
    pub requests_per_minute: Option<NonZeroU32>,
    /// Algorithms of signatures that are accepted; all of them by default.
    #[serde(default)]
    pub algorithms: Option<BTreeSet<SignatureAlgorithm>>,
}

/// An algorithm of a signature. Those with a shared secret, and `none`, cannot be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[schemars(rename = "algorithm")]
pub enum SignatureAlgorithm {
    /// RSA signatures of PKCS #1 v1.5 with SHA-256.
    #[serde(rename = "RS256")]
    Rs256,
    /// RSA signatures of PKCS #1 v1.5 with SHA-384.
    #[serde(rename = "RS384")]
    Rs384,
    /// RSA signatures of PKCS #1 v1.5 with SHA-512.
    #[serde(rename = "RS512")]
    Rs512,
    /// RSA signatures of PSS with SHA-256.
    #[serde(rename = "PS256")]
    Ps256,
    /// RSA signatures of PSS with SHA-384.
    #[serde(rename = "PS384")]
    Ps384,
    /// RSA signatures of PSS with SHA-512.
    #[serde(rename = "PS512")]
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    #[serde(rename = "ES256")]
    Es256,
    /// ECDSA on P-384 with SHA-384.
    #[serde(rename = "ES384")]
    Es384,
    /// Ed25519 signatures of RFC 8037, which RFC 9864 calls `Ed25519`.
    #[serde(rename = "EdDSA", alias = "Ed25519")]
    EdDsa,
}

/// One text, or a list of texts.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a text or a list of texts")]
#[schemars(inline)]
enum OneOrSeveral {
    One(String),
    Several(Vec<String>),
}

fn one_or_several<'de, D: serde::Deserializer<'de>>(input: D) -> Result<Vec<String>, D::Error> {
    Ok(match OneOrSeveral::deserialize(input)? {
        OneOrSeveral::One(text) => vec![text],
        OneOrSeveral::Several(texts) => texts,
    })
}

fn default_subject_claim() -> String {
    "sub".to_owned()
}

fn default_scope_claim() -> String {
    "scope".to_owned()
}

fn default_scope_prefix() -> String {
    "ailoop:".to_owned()
}

impl IssuerConfig {
    /// Checks all issuers of an edge; the message names the field.
    pub(crate) fn check_all(issuers: &[Self]) -> Result<(), String> {
        if issuers.len() > ISSUERS_MAX {
            return Err(format!("edge.issuers has {} entries, at most {ISSUERS_MAX} are allowed", issuers.len()));
        }
        let mut known = BTreeSet::new();
        for (index, issuer) in issuers.iter().enumerate() {
            issuer.check().map_err(|(field, why)| format!("{} {why}", field_of(index, field)))?;
            if !known.insert(&issuer.issuer) {
                return Err(format!("{} is that of another entry: name each issuer once", field_of(index, "issuer")));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let at = |field: &'static str| move |why: String| (field, why);
        let url = parse_url(&self.issuer).map_err(at("issuer"))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(("issuer", "has a query or a fragment: an issuer has neither".to_owned()));
        }
        if let Some(jwks_url) = &self.jwks_url {
            parse_url(jwks_url).map_err(at("jwks_url"))?;
            if self.jwks_file.is_some() {
                return Err(("jwks_file", "is set beside jwks_url: remove one of them".to_owned()));
            }
        }
        if self.tenant.is_some() && self.tenant_claim.is_some() {
            return Err(("tenant_claim", "is set beside tenant: remove one of them".to_owned()));
        }
        if self.audience.is_empty() || self.audience.len() > AUDIENCES_MAX {
            return Err(("audience", format!("must name 1 to {AUDIENCES_MAX} audiences")));
        }
        let audiences = self.audience.iter().map(|audience| ("audience", Some(audience)));
        let texts = [
            ("tenant_claim", self.tenant_claim.as_ref()),
            ("subject_claim", Some(&self.subject_claim)),
            ("scope_claim", Some(&self.scope_claim)),
            ("agents_claim", self.agents_claim.as_ref()),
        ];
        for (field, text) in audiences.chain(texts) {
            if text.is_some_and(|text| text.is_empty() || text.len() > TEXT_BYTES_MAX) {
                return Err((field, format!("must have 1 to {TEXT_BYTES_MAX} bytes")));
            }
        }
        if self.scope_prefix.len() > TEXT_BYTES_MAX || self.scope_prefix.contains(char::is_whitespace) {
            return Err(("scope_prefix", format!("must have at most {TEXT_BYTES_MAX} bytes, without white space")));
        }
        if self.algorithms.as_ref().is_some_and(BTreeSet::is_empty) {
            return Err(("algorithms", "is empty, so that every token would be refused: remove it".to_owned()));
        }
        Ok(())
    }

    /// Whether signatures of the algorithm are accepted.
    pub(crate) fn allows(&self, algorithm: SignatureAlgorithm) -> bool {
        self.algorithms.as_ref().is_none_or(|algorithms| algorithms.contains(&algorithm))
    }
}

/// Names a field of an entry, as messages show it.
pub(crate) fn field_of(index: usize, field: &str) -> String {
    format!("edge.issuers[{index}].{field}")
}

/// Parses a URL from which keys may come: https, or http on this machine.
pub(crate) fn parse_url(text: &str) -> Result<Url, String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("has more than {TEXT_BYTES_MAX} bytes"));
    }
    let url = Url::parse(text).map_err(|error| format!("is no URL: {error}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has a user or a password: keys of an issuer are public".to_owned());
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&url) => Ok(url),
        scheme => Err(format!("begins with {scheme}: use https (http only on this machine)")),
    }
}

/// Whether the host of a URL is this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fields: &str) -> Result<(), String> {
        let issuers: Vec<IssuerConfig> = serde_json::from_str(&format!("[{fields}]")).map_err(|e| e.to_string())?;
        IssuerConfig::check_all(&issuers)
    }

    #[test]
    fn configuration_with_a_mistake_is_refused_with_its_field() {
        let entry = |issuer: &str, more: &str| format!(r#"{{"issuer": "{issuer}", "audience": "ailoop"{more}}}"#);
        let url = "https://login.example.org/realms/a";
        for good in [entry(url, ""), entry("http://127.0.0.1:1/", ""), entry("http://[::1]:1", "")] {
            assert_eq!(check(&good), Ok(()), "{good}");
        }
        let rows = [
            (entry("login.example.org", ""), "edge.issuers[0].issuer is no URL"),
            (entry("http://login.example.org", ""), "use https"),
            (entry("http://localhost.example.org", ""), "use https"),
            (entry("file:///keys", ""), "use https"),
            (entry("https://u:p@example.org", ""), "password"),
            (entry("https://example.org?a", ""), "query"),
            (entry(url, r#", "jwks_url": "http://example.org""#), "edge.issuers[0].jwks_url begins"),
            (entry(url, r#", "jwks_url": "https://example.org", "jwks_file": "k""#), "edge.issuers[0].jwks_file"),
            (entry(url, r#", "tenant": "a", "tenant_claim": "t""#), "edge.issuers[0].tenant_claim"),
            (entry(url, r#", "scope_claim": """#), "edge.issuers[0].scope_claim"),
            (entry(url, r#", "scope_prefix": "a b""#), "edge.issuers[0].scope_prefix"),
            (entry(url, r#", "algorithms": []"#), "edge.issuers[0].algorithms"),
            (entry(url, r#", "algorithms": ["HS256"]"#), "HS256"),
            (entry(url, r#", "algorithms": ["none"]"#), "none"),
            (entry(url, r#", "audiences": []"#), "audiences"),
            (format!(r#"{{"issuer": "{url}", "audience": []}}"#), "edge.issuers[0].audience must name"),
            (format!(r#"{{"issuer": "{url}", "audience": ["a", ""]}}"#), "edge.issuers[0].audience must have"),
            (format!("{},{}", entry(url, ""), entry(url, "")), "edge.issuers[1].issuer is that of another"),
            (vec![entry(url, ""); 9].join(","), "at most 8"),
        ];
        for (fields, wanted) in rows {
            let refused = check(&fields).unwrap_err();
            assert!(refused.contains(wanted), "{wanted}: {refused}");
            assert!(!refused.contains("u:p"), "{refused}");
        }
    }
}
