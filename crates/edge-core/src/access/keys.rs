//! API keys: their text, and the file that says what each of them grants.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroU32;
use std::sync::Arc;

use configuration::api_key::is_well_formed;
use configuration::{ConfigError, TextFile, yaml};
use contract::limits::{API_KEY_AGENTS_MAX, API_KEYS_MAX};
use contract::tool::sha256_hex;
use contract::{AgentId, TenantId, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use service::connections::ConnectionLimits;
use session_api::Scope;

use super::grant::{Grant, HolderLimits};

/// A file of API keys: `edge.keys_file`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "keys.yaml")]
pub struct KeysFile {
    /// The keys, at most 10 000. Several keys may have the same subject, so that one replaces another.
    #[schemars(length(max = API_KEYS_MAX))]
    pub keys: Vec<KeyEntry>,
}

/// An API key, and what it grants.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "key")]
pub struct KeyEntry {
    /// Name of the key, once in the file.
    pub id: String,
    /// SHA-256 of the key, in hexadecimal digits.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub sha256: String,
    /// The tenant whose sessions the key reaches; that of the edge where none is given.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub tenant: Option<TenantId>,
    /// Name of the holder in the log; the `id` where none is given.
    #[serde(default)]
    pub subject: Option<String>,
    /// Kinds of requests that the holder may make.
    pub scopes: BTreeSet<Scope>,
    /// The agents whose sessions the key reaches; all of them where none are given.
    #[serde(default)]
    #[schemars(with = "Option<Vec<String>>", length(max = API_KEY_AGENTS_MAX))]
    pub agents: Option<BTreeSet<AgentId>>,
    /// The key is refused from this time on.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub expires: Option<Timestamp>,
    /// Requests in a minute, on each replica of the edge.
    #[serde(default)]
    pub requests_per_minute: Option<NonZeroU32>,
}

impl KeysFile {
    /// Parses and checks a file.
    pub fn parse(file: &TextFile) -> Result<Self, ConfigError> {
        let parsed: Option<Self> = yaml::parse(file)?;
        let parsed = parsed.unwrap_or_default();
        parsed.check().map_err(|message| ConfigError::Bad {
            origin: file.origin.clone(),
            line: 0,
            column: 0,
            message,
        })?;
        Ok(parsed)
    }

    /// Returns the ids of the keys that administer a tenant and do not operate the fleet, which `administer` included
    /// before there was the scope `operate`.
    pub fn administrators(&self) -> Vec<&str> {
        let is_administrator = |key: &&KeyEntry| {
            let has = |scope| key.scopes.contains(&scope);
            has(Scope::Administer) && !has(Scope::Operate) && key.agents.is_none()
        };
        self.keys.iter().filter(is_administrator).map(|key| key.id.as_str()).collect()
    }

    fn check(&self) -> Result<(), String> {
        if self.keys.len() > API_KEYS_MAX {
            return Err(format!("{} keys, at most {API_KEYS_MAX} are allowed", self.keys.len()));
        }
        let (mut ids, mut hashes) = (BTreeSet::new(), BTreeSet::new());
        for KeyEntry { id, sha256, subject, scopes, agents, .. } in &self.keys {
            let wrong = |what: String| Err(format!("key {id:?}: {what}"));
            for name in [Some(id), subject.as_ref()].into_iter().flatten() {
                if name.is_empty() || name.len() > 128 || name.chars().any(|c| c.is_control() || c.is_whitespace()) {
                    return wrong(format!("{name:?} must have 1 to 128 bytes, without white space"));
                }
            }
            if sha256.len() != 64 || !sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
                return wrong("sha256 must have 64 lower-case hexadecimal digits: see `ailoop api-key new`".to_owned());
            }
            if scopes.is_empty() {
                return wrong(
                    "it has no scope: give it some of run, converse, observe, approve, administer, operate".to_owned(),
                );
            }
            if agents.as_ref().is_some_and(|agents| agents.is_empty() || agents.len() > API_KEY_AGENTS_MAX) {
                return wrong(format!("agents must name 1 to {API_KEY_AGENTS_MAX} agents, or be left out"));
            }
            if !ids.insert(id) {
                return wrong("another key has the same id".to_owned());
            }
            if !hashes.insert(sha256) {
                return wrong("another key has the same sha256".to_owned());
            }
        }
        Ok(())
    }
}

/// The grants of a file of keys.
#[derive(Debug, Default)]
pub(super) struct ApiKeys {
    by_hash: HashMap<String, (KeyFacts, Arc<Grant>)>,
}

/// Text of the entry that a grant was made from; it shows whether the entry has changed.
type KeyFacts = String;

impl ApiKeys {
    /// Makes the grants. An unchanged key keeps its grant, with its open connections and its rate; that of a key which
    /// is gone or changed is revoked.
    pub(super) fn replace(&mut self, file: &KeysFile, default_tenant: &TenantId, limits: &ConnectionLimits) {
        let mut before = std::mem::take(&mut self.by_hash);
        for entry in &file.keys {
            let facts = format!("{entry:?}");
            let kept = before.remove(&entry.sha256).filter(|(known, grant)| {
                let is_same = *known == facts;
                if !is_same {
                    grant.revoked.cancel();
                }
                is_same
            });
            let kept = kept.unwrap_or_else(|| (facts, Arc::new(to_grant(entry, default_tenant, limits))));
            self.by_hash.insert(entry.sha256.clone(), kept);
        }
        for (_, grant) in before.into_values() {
            grant.revoked.cancel();
        }
    }

    /// Finds the grant of a presented key by its hash, which tells nothing of the keys by its time.
    pub(super) fn find(&self, presented: &str) -> Option<Arc<Grant>> {
        if !is_well_formed(presented) {
            return None;
        }
        self.by_hash.get(&sha256_hex(presented.as_bytes())).map(|(_, grant)| grant.clone())
    }

    pub(super) fn len(&self) -> usize {
        self.by_hash.len()
    }
}

fn to_grant(entry: &KeyEntry, default_tenant: &TenantId, limits: &ConnectionLimits) -> Grant {
    let KeyEntry { id, sha256: _, tenant, subject, scopes, agents, expires, requests_per_minute } = entry.clone();
    let tenant = tenant.unwrap_or_else(|| default_tenant.clone());
    let grant = Grant::full(tenant, subject.unwrap_or(id));
    let limits = Some(HolderLimits::new(limits, requests_per_minute));
    Grant { agents, expires, limits, ..grant.with_scopes(scopes) }
}

#[cfg(test)]
mod tests {
    use configuration::api_key::generate_key;

    use super::*;

    fn parse(text: &str) -> Result<KeysFile, ConfigError> {
        KeysFile::parse(&TextFile { origin: "keys.yaml".to_owned(), text: text.to_owned() })
    }

    fn entry(id: &str, key: &str, rest: &str) -> String {
        format!("- {{id: {id}, sha256: {}, {rest}}}\n", sha256_hex(key.as_bytes()))
    }

    #[test]
    fn changed_file_keeps_the_grant_of_an_unchanged_key_and_revokes_the_others() {
        let (kept, changed, removed) = (generate_key(), generate_key(), generate_key());
        let rows = |more: String| parse(&format!("keys:\n{}{more}", entry("a", &kept, "scopes: [run]"))).unwrap();
        let (tenant, mut keys) = (TenantId::new("acme").unwrap(), ApiKeys::default());
        keys.replace(
            &rows(entry("b", &changed, "scopes: [run, approve], tenant: t2") + &entry("c", &removed, "scopes: [run]")),
            &tenant,
            &ConnectionLimits::default(),
        );
        let before = [&kept, &changed, &removed].map(|key| keys.find(key).unwrap());
        assert_eq!((before[0].tenant.as_str(), before[1].tenant.as_str()), ("acme", "t2"));
        keys.replace(&rows(entry("b", &changed, "scopes: [run]")), &tenant, &ConnectionLimits::default());
        assert_eq!(before.each_ref().map(|grant| grant.revoked.is_cancelled()), [false, true, true]);
        assert!(Arc::ptr_eq(&keys.find(&kept).unwrap(), &before[0]));
        assert_eq!(keys.find(&changed).unwrap().scopes, [Scope::Run].into());
        assert!(keys.find(&removed).is_none());
    }

    #[test]
    fn keys_that_administer_and_do_not_operate_are_named() {
        let rows = [
            ("plain", "scopes: [administer]"),
            ("both", "scopes: [administer, operate]"),
            ("runner", "scopes: [run]"),
            ("limited", "scopes: [administer], agents: [a]"),
        ];
        let entries: String = rows.iter().map(|(id, rest)| entry(id, &generate_key(), rest)).collect();
        assert_eq!(parse(&format!("keys:\n{entries}")).unwrap().administrators(), ["plain"]);
    }

    #[test]
    fn file_with_a_mistake_is_refused_with_the_key_that_has_it() {
        let key = generate_key();
        let same = entry("a", &key, "scopes: [run]");
        let rows = [
            (entry("a", &key, "scopes: []"), "no scope"),
            (entry("a", &key, "scopes: [fly]"), "fly"),
            (entry("a", &key, "scopes: [run], agents: []"), "agents"),
            (entry("a", &key, "scopes: [run], tenant: a.b"), "a.b"),
            (entry("'a b'", &key, "scopes: [run]"), "white space"),
            (entry("a", &key, "scopes: [run], requests_per_minute: 0"), "nonzero"),
            ("- {id: a, sha256: ABC, scopes: [run]}\n".to_owned(), "64"),
            (format!("{same}{}", entry("a", &generate_key(), "scopes: [run]")), "same id"),
            (format!("{same}{}", entry("b", &key, "scopes: [run]")), "same sha256"),
        ];
        for (text, wanted) in rows {
            let refused = parse(&format!("keys:\n{text}")).unwrap_err().to_string();
            assert!(refused.contains(wanted), "{wanted}: {refused}");
        }
        assert!(parse("").unwrap().keys.is_empty());
    }
}
