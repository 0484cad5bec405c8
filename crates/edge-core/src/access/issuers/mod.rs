//! Access tokens of `OpenID` Connect issuers, which are verified with the public keys of the issuers.

mod claims;
mod jwks;
mod jws;
mod key_fetch;
mod key_source;
mod verified_tokens;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contract::limits::ACCESS_TOKENS_MAX;
use contract::{ErrorCode, TenantId};
use futures::future::join_all;
use serde_json::{Map, Value};
use service::connections::ConnectionLimits;
use service::health::Readiness;
use session_api::Scope;

use super::grant::{Grant, HolderLimits};
use crate::api_error::ApiError;
use crate::clock;
use crate::config::IssuerConfig;
use claims::unauthorized;
use jwks::{KeyMatch, KeySet, VerificationKey};
use jws::SignedToken;
use key_source::KeySource;
use verified_tokens::VerifiedTokens;

/// The beginning of each signed token: `{"` in base64.
const TOKEN_PREFIX: &str = "eyJ";
/// Retry delay for a client whose token cannot be verified yet.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The issuers of an edge. Clones share them.
#[derive(Debug, Clone)]
pub struct Issuers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    issuers: Vec<Issuer>,
    /// Tenant of tokens that name none.
    tenant: TenantId,
    /// Limits of each holder of a token.
    limits: ConnectionLimits,
    /// A lock since it is held for a look-up only.
    verified: Mutex<VerifiedTokens>,
}

#[derive(Debug)]
struct Issuer {
    config: IssuerConfig,
    source: KeySource,
}

impl Issuers {
    /// Reads the keys that are in files. Others are fetched by [`Issuers::follow`], or by the first token.
    pub(crate) fn new(configs: &[IssuerConfig], tenant: &TenantId, limits: ConnectionLimits) -> Result<Self, String> {
        let open = |(index, config): (usize, &IssuerConfig)| {
            Ok(Issuer { config: config.clone(), source: KeySource::new(index, config)? })
        };
        let issuers: Result<Vec<_>, String> = configs.iter().enumerate().map(open).collect();
        let verified = Mutex::new(VerifiedTokens::new(ACCESS_TOKENS_MAX));
        Ok(Self { shared: Arc::new(Shared { issuers: issuers?, tenant: tenant.clone(), limits, verified }) })
    }

    /// Whether there is no issuer.
    pub(crate) fn is_empty(&self) -> bool {
        self.shared.issuers.is_empty()
    }

    /// Whether a credential is an access token.
    pub(super) fn is_token(&self, presented: &str) -> bool {
        !self.is_empty() && presented.starts_with(TOKEN_PREFIX)
    }

    /// Verifies an access token. A token that was verified before keeps its grant.
    pub(super) async fn authenticate(&self, token: &str) -> Result<Arc<Grant>, ApiError> {
        let parsed = SignedToken::parse(token).map_err(|why| unauthorized(&why))?;
        let hash = verified_tokens::hash(token);
        let known = self.verified().get(&hash);
        if let Some(known) = known {
            return Ok(known);
        }
        let claims: Map<String, Value> =
            serde_json::from_slice(&parsed.payload).map_err(|_| unauthorized("its payload is damaged"))?;
        let issuer = claims.get("iss").and_then(Value::as_str);
        let mut issuers = self.shared.issuers.iter().enumerate();
        let (index, issuer) = issuers
            .find(|(_, known)| issuer == Some(&*known.config.issuer))
            .ok_or_else(|| unauthorized("its issuer is not one of edge.issuers"))?;
        if !issuer.config.allows(parsed.algorithm) {
            return Err(unauthorized("its algorithm is not one of those of edge.issuers[].algorithms"));
        }
        let key = find_key(issuer, &parsed).await?;
        if !parsed.is_signed_by(&key.key) {
            return Err(unauthorized("its signature is wrong"));
        }
        let now = clock::now();
        let grant = claims::to_grant(&issuer.config, &self.shared.tenant, &claims, now)?;
        let new_limits = || HolderLimits::new(&self.shared.limits, issuer.config.requests_per_minute);
        let grant = self.verified().insert(hash, index, key.clone(), grant, new_limits, now);
        // The key may have gone meanwhile, after the tokens were looked through.
        if let Some(keys) = issuer.source.get()
            && !keys.contains(&key)
        {
            self.verified().revoke_without_key(index, &keys);
        }
        Ok(grant)
    }

    /// Reads the keys again and again, until the task ends. While those of an issuer cannot be read, its last ones stay,
    /// and its readiness has a warning.
    pub async fn follow(self, readiness: Vec<Readiness>) {
        let shared = &self.shared;
        let followed = shared.issuers.iter().zip(readiness).enumerate().map(async |(index, (issuer, readiness))| {
            let report = |outcome: Result<Arc<KeySet>, String>| match outcome {
                Ok(keys) => {
                    readiness.warn(None);
                    self.verified().revoke_without_key(index, &keys);
                }
                Err(why) => {
                    readiness.warn(Some(&format!("the keys of {} could not be read: {why}", issuer.config.issuer)));
                }
            };
            issuer.source.follow(report).await;
        });
        join_all(followed).await;
    }

    /// Makes the readiness of each issuer, for its warnings.
    pub fn readiness(&self) -> Vec<Readiness> {
        let ready = |_: &Issuer| {
            let readiness = Readiness::new("issuers");
            readiness.set(true);
            readiness
        };
        self.shared.issuers.iter().map(ready).collect()
    }

    /// Names of the issuers, and the scopes that they may grant, for clients that look for a token.
    pub(crate) fn metadata(&self) -> (Vec<&str>, Vec<String>) {
        let configs = self.shared.issuers.iter().map(|issuer| &issuer.config);
        let mut scopes: Vec<String> = Vec::new();
        for scope in configs
            .clone()
            .flat_map(|config| Scope::ALL.iter().map(move |scope| format!("{}{scope}", config.scope_prefix)))
        {
            if !scopes.contains(&scope) {
                scopes.push(scope);
            }
        }
        (configs.map(|config| &*config.issuer).collect(), scopes)
    }

    fn verified(&self) -> MutexGuard<'_, VerifiedTokens> {
        self.shared.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds the key of a token. A key that is not known may be new at the issuer.
async fn find_key(issuer: &Issuer, token: &SignedToken<'_>) -> Result<Arc<VerificationKey>, ApiError> {
    let choose = |keys: &Arc<KeySet>| match keys.choose(token) {
        KeyMatch::Found(key) => Ok(Some(key)),
        KeyMatch::UnknownKid => Ok(None),
        KeyMatch::WrongKind => Err(unauthorized("no key of its issuer fits its algorithm")),
    };
    let mut keys = issuer.source.get();
    // The first fetch may be one that began before the issuer had the key.
    for _ in 0..2 {
        if let Some(key) = keys.as_ref().map(choose).transpose()?.flatten() {
            return Ok(key);
        }
        keys = issuer.source.renew(keys.as_ref()).await;
    }
    let Some(keys) = keys else {
        let name = &issuer.config.issuer;
        let message = format!("the keys of the issuer {name} could not be fetched yet: try again later");
        return Err(ApiError::new(ErrorCode::Unavailable, message).with_retry_after(RETRY_AFTER));
    };
    choose(&keys)?.ok_or_else(|| unauthorized("its issuer has no key of its `kid`"))
}
