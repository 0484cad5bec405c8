//! The claims of operators, accounts and users, as nats-server reads them.

use std::collections::BTreeMap;

use nats_permissions::{Account, Permissions};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Version of the format.
const VERSION: u8 = 2;
/// Value of a limit that permits everything.
const UNLIMITED: i64 = -1;

/// Claims about an operator in its JWT.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct OperatorClaims {
    system_account: String,
    #[serde(rename = "type")]
    kind: String,
    version: u8,
}

impl OperatorClaims {
    pub(crate) fn new(system_account: String) -> Self {
        Self { system_account, kind: "operator".to_owned(), version: VERSION }
    }
}

/// Claims about an account: its limits, the keys that sign its users, and the revoked users.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AccountClaims {
    /// Limits of the account, storage included.
    #[serde(default)]
    pub limits: Map<String, Value>,
    /// Keys that sign users, each with what its users may do.
    #[serde(default)]
    pub signing_keys: Vec<SigningKey>,
    /// Public keys of revoked users: what was issued up to that second is refused.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub revocations: BTreeMap<String, i64>,
    #[serde(rename = "type")]
    kind: String,
    version: u8,
    /// Claims that other tools added, such as exports.
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl AccountClaims {
    /// An account without signing keys. JetStream has no limit but that of the server; the system account has none.
    pub(crate) fn new(account: Account) -> Self {
        let storage = match account {
            Account::Ailoop => UNLIMITED,
            Account::System => 0,
        };
        let limits = json!({
            "subs": UNLIMITED, "data": UNLIMITED, "payload": UNLIMITED,
            "imports": UNLIMITED, "exports": UNLIMITED, "wildcards": true, "conn": UNLIMITED, "leaf": UNLIMITED,
            "mem_storage": storage, "disk_storage": storage, "streams": storage, "consumer": storage,
            "disallow_bearer": true,
        });
        let limits = limits.as_object().cloned().unwrap_or_default();
        Self {
            limits,
            signing_keys: Vec::new(),
            revocations: BTreeMap::new(),
            kind: "account".to_owned(),
            version: VERSION,
            others: Map::new(),
        }
    }

    /// The scopes of the signing keys by the names of their roles.
    pub fn scopes(&self) -> BTreeMap<&str, &UserScope> {
        let scopes = self.signing_keys.iter().filter_map(|key| match key {
            SigningKey::Scoped(scope) => Some((scope.role.as_str(), &**scope)),
            SigningKey::Plain(_) => None,
        });
        scopes.collect()
    }
}

/// A key that signs users of an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum SigningKey {
    /// The permissions of its users are those of the scope.
    Scoped(Box<UserScope>),
    /// The permissions of its users are in their JWTs.
    Plain(String),
}

/// Permissions of the users of a signing key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserScope {
    kind: String,
    /// Public key of the signing key.
    pub key: String,
    /// Name of the role.
    pub role: String,
    template: UserLimits,
    #[serde(default)]
    description: String,
}

impl UserScope {
    pub(crate) fn new(key: String, role: &str, about: &str, permissions: &Permissions) -> Self {
        let template = UserLimits::new(permissions);
        let (kind, role, description) = ("user_scope".to_owned(), role.to_owned(), about.to_owned());
        Self { kind, key, role, template, description }
    }

    /// Permits what another scope of the role permits, too.
    pub(crate) fn permit_also(&mut self, other: &Self) {
        self.template.publish.permit_also(&other.template.publish);
        self.template.subscribe.permit_also(&other.template.subscribe);
    }

    /// Whether both permit the same.
    pub fn permits_the_same(&self, other: &Self) -> bool {
        self.template == other.template
    }
}

/// Permissions and limits of a user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UserLimits {
    subs: i64,
    data: i64,
    payload: i64,
    #[serde(rename = "pub", default)]
    publish: SubjectLists,
    #[serde(rename = "sub", default)]
    subscribe: SubjectLists,
    #[serde(rename = "resp", default, skip_serializing_if = "Option::is_none")]
    responses: Option<Responses>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SubjectLists {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    allow: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    deny: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Responses {
    max: u32,
    /// Time to live in nanoseconds.
    ttl: u64,
}

impl UserLimits {
    pub(crate) fn new(permissions: &Permissions) -> Self {
        let responses = permissions.answers.map(|answers| Responses {
            max: answers.max,
            ttl: u64::try_from(answers.within.as_nanos()).unwrap_or(u64::MAX),
        });
        Self {
            subs: UNLIMITED,
            data: UNLIMITED,
            payload: UNLIMITED,
            publish: SubjectLists::new(&permissions.publish),
            subscribe: SubjectLists::new(&permissions.subscribe),
            responses,
        }
    }
}

impl SubjectLists {
    /// An empty list is a denial of all, since nats-server would allow everything.
    fn new(allowed: &[String]) -> Self {
        let deny = if allowed.is_empty() { vec![">".to_owned()] } else { Vec::new() };
        Self { allow: allowed.to_vec(), deny }
    }

    fn permit_also(&mut self, other: &Self) {
        let more = other.allow.iter().filter(|subject| !self.allow.contains(subject)).cloned().collect::<Vec<_>>();
        self.allow.extend(more);
        if !self.allow.is_empty() {
            self.deny.clear();
        }
    }
}

/// Claims about a user. The limits are in the scope of the signing key, unless the key has none.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct UserNats {
    issuer_account: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    limits: Option<UserLimits>,
    #[serde(rename = "type")]
    kind: &'static str,
    version: u8,
}

impl UserNats {
    pub(crate) fn new(issuer_account: String, permissions: Option<&Permissions>) -> Self {
        Self { issuer_account, limits: permissions.map(UserLimits::new), kind: "user", version: VERSION }
    }
}
