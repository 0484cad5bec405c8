//! Signs accounts and users.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::TenantId;
use nats_credentials::Credentials;
use nats_permissions::{ACCOUNT, Account, Permissions, Role};
use nkeys::KeyPair;

use crate::claims::{AccountClaims, OperatorClaims, SigningKey, UserNats, UserScope};
use crate::jwt::{Claims, sign};
use crate::keys::TOOLS;
use crate::{AuthError, Keys};

/// Name of the system account.
pub(crate) const SYSTEM_ACCOUNT: &str = "SYS";

/// The keys of an installation and the roles of this version.
#[derive(Debug)]
pub struct Authority {
    pub(crate) keys: Keys,
    pub(crate) roles: Vec<Role>,
}

/// Validity period of a credential, from its issue.
#[derive(Debug, Clone, Copy)]
pub struct Lifetime {
    /// Now, in seconds since 1970.
    pub now: i64,
    /// Time for which it is valid; `None` is without an end.
    pub valid_for: Option<Duration>,
}

/// A new user with its credentials file.
#[derive(Debug, Clone)]
pub struct IssuedUser {
    /// Its public key, by which it is revoked.
    pub public_key: String,
    /// Text of its credentials file.
    pub credentials: String,
}

impl Authority {
    /// An authority with these keys, for these roles.
    pub fn new(keys: Keys, roles: Vec<Role>) -> Self {
        Self { keys, roles }
    }

    /// Public key of an account.
    pub fn account_key(&self, account: Account) -> String {
        self.keys.account(account).public_key()
    }

    /// Signs the operator, which nats-server trusts by its configuration.
    pub fn operator_jwt(&self, now: i64) -> Result<String, AuthError> {
        let claims = OperatorClaims::new(self.account_key(Account::System));
        let key = &self.keys.operator;
        sign(blank("ailoop", key, now, claims), key)
    }

    /// Signs an account with the permissions of this version. Limits, revocations and additions of `previous` stay.
    pub fn account_jwt(
        &self,
        account: Account,
        previous: Option<&Claims<AccountClaims>>,
        now: i64,
    ) -> Result<String, AuthError> {
        self.account_jwt_with(account, previous, &BTreeMap::new(), now)
    }

    /// As [`Authority::account_jwt`], and roles keep what `previous` permits them: processes of an older version run
    /// meanwhile.
    pub fn account_jwt_keeping_old(
        &self,
        account: Account,
        previous: &Claims<AccountClaims>,
        now: i64,
    ) -> Result<String, AuthError> {
        let (mut claims, old) = (previous.nats.clone(), previous.nats.scopes());
        claims.signing_keys = self.signing_keys(account)?;
        for key in &mut claims.signing_keys {
            if let SigningKey::Scoped(scope) = key
                && let Some(old) = old.get(scope.role.as_str())
            {
                scope.permit_also(old);
            }
        }
        self.sign_account(account, Some(previous), claims, now)
    }

    /// As [`Authority::account_jwt`], with more revocations: public keys, and the second up to which they are revoked.
    pub fn account_jwt_with(
        &self,
        account: Account,
        previous: Option<&Claims<AccountClaims>>,
        revoked: &BTreeMap<String, i64>,
        now: i64,
    ) -> Result<String, AuthError> {
        let mut claims = previous.map_or_else(|| AccountClaims::new(account), |previous| previous.nats.clone());
        claims.signing_keys = self.signing_keys(account)?;
        claims.revocations.extend(revoked.iter().map(|(user, until)| (user.clone(), *until)));
        self.sign_account(account, previous, claims, now)
    }

    fn sign_account(
        &self,
        account: Account,
        previous: Option<&Claims<AccountClaims>>,
        claims: AccountClaims,
        now: i64,
    ) -> Result<String, AuthError> {
        let name = match account {
            Account::Ailoop => ACCOUNT,
            Account::System => SYSTEM_ACCOUNT,
        };
        // nats-server prefers the newer JWT, and on a tie that of its configuration.
        let issued_at = previous.map_or(now, |previous| now.max(previous.issued_at + 1));
        sign(blank(name, self.keys.account(account), issued_at, claims), &self.keys.operator)
    }

    /// The roles whose permissions in an account differ from those of this version, or that it lacks.
    pub fn outdated_roles(&self, account: Account, claims: &AccountClaims) -> Result<Vec<String>, AuthError> {
        let there = claims.scopes();
        let mut outdated = Vec::new();
        for key in self.signing_keys(account)? {
            let SigningKey::Scoped(scope) = key else { continue };
            let same = there.get(scope.role.as_str()).is_some_and(|old| old.permits_the_same(&scope));
            if !same {
                outdated.push(scope.role);
            }
        }
        Ok(outdated)
    }

    fn signing_keys(&self, account: Account) -> Result<Vec<SigningKey>, AuthError> {
        let mut signing_keys = Vec::new();
        for role in self.roles.iter().filter(|role| role.account == account) {
            let key = self.keys.signer(role.name)?.public_key();
            let scope = UserScope::new(key, role.name, role.about, &role.permissions);
            signing_keys.push(SigningKey::Scoped(Box::new(scope)));
        }
        if account == Account::Ailoop {
            signing_keys.push(SigningKey::Plain(self.keys.signer(TOOLS)?.public_key()));
        }
        Ok(signing_keys)
    }

    /// Makes a user of a role.
    pub fn role_user(&self, role: &str, lifetime: Lifetime) -> Result<IssuedUser, AuthError> {
        let known = self.roles.iter().find(|known| known.name == role);
        let known = known.ok_or_else(|| AuthError::UnknownRole(role.to_owned()))?;
        self.issue(known.name, known.account, self.keys.signer(role)?, None, lifetime)
    }

    /// Makes a user that serves tools of a tenant. Its permissions are in its JWT, since nats-server drops queue groups
    /// from the template of a scope.
    pub fn tool_user(
        &self,
        name: &str,
        tenant: &TenantId,
        tools: &[String],
        call_max: Duration,
        lifetime: Lifetime,
    ) -> Result<IssuedUser, AuthError> {
        let permissions = nats_permissions::tool(tenant, tools, call_max);
        self.issue(name, Account::Ailoop, self.keys.signer(TOOLS)?, Some(&permissions), lifetime)
    }

    fn issue(
        &self,
        name: &str,
        account: Account,
        signer: &KeyPair,
        permissions: Option<&Permissions>,
        lifetime: Lifetime,
    ) -> Result<IssuedUser, AuthError> {
        let user = KeyPair::new_user();
        let nats = UserNats::new(self.account_key(account), permissions);
        let valid_for = lifetime.valid_for.map(|time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
        let expires_at = valid_for.map_or(0, |seconds| lifetime.now.saturating_add(seconds));
        let jwt = sign(Claims { expires_at, ..blank(name, &user, lifetime.now, nats) }, signer)?;
        let problem = |error: nkeys::error::Error| AuthError::Key { name: name.to_owned(), problem: error.to_string() };
        let credentials = Credentials::format(&jwt, &user.seed().map_err(problem)?);
        Ok(IssuedUser { public_key: user.public_key(), credentials })
    }
}

fn blank<N>(name: &str, subject: &KeyPair, now: i64, nats: N) -> Claims<N> {
    let (id, issuer, name) = (String::new(), String::new(), name.to_owned());
    Claims { id, issued_at: now, expires_at: 0, issuer, name, subject: subject.public_key(), nats }
}
