//! The credentials that clients may show, with their grants. Their files are read again and again, so that a credential is
//! replaced without a restart.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use configuration::{Secret, TextFile, api_key};
use contract::{ErrorCode, TenantId};
use service::connections::ConnectionLimits;
use service::contents;
use service::health::Readiness;
use subtle::ConstantTimeEq;

use super::grant::Grant;
use super::issuers::Issuers;
use super::keys::{ApiKeys, KeysFile};
use super::tokens;
use crate::api_error::ApiError;
use crate::config::{EdgeConfig, EdgeStartError};

/// Bytes of the file of keys.
const KEYS_BYTES_MAX: u64 = 8 << 20;
/// Name in the log of clients that show a token, or need none.
const CLIENT: &str = "client";

/// The credentials. Clones share them.
#[derive(Debug, Clone)]
pub struct Grants {
    sources: Arc<Sources>,
    without_credential: Arc<Grant>,
    issuers: Issuers,
    /// A lock since it is held for a look-up only.
    known: Arc<RwLock<Known>>,
}

/// Sources from which the credentials are read.
#[derive(Debug)]
struct Sources {
    tenant: TenantId,
    token: Option<Secret>,
    tokens_dir: Option<PathBuf>,
    keys_file: Option<PathBuf>,
    /// Limits of the holder of each key.
    limits: ConnectionLimits,
}

/// The credentials as they were last read.
#[derive(Debug, Default)]
struct Known {
    tokens: Vec<(Secret, Arc<Grant>)>,
    keys: ApiKeys,
}

/// Contents of the credential files.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    tokens: Vec<Secret>,
    /// Text of the file of keys.
    keys: Option<String>,
}

impl Grants {
    /// Reads them for the first time.
    pub fn new(config: &EdgeConfig) -> Result<Self, EdgeStartError> {
        let sources = Sources {
            tenant: config.tenant.clone(),
            token: config.token.clone(),
            tokens_dir: config.tokens_dir.clone(),
            keys_file: config.keys_file.clone(),
            limits: config.connections,
        };
        let found = sources.read().map_err(EdgeStartError::BadConfig)?;
        let issuers =
            Issuers::new(&config.issuers, &config.tenant, config.connections).map_err(EdgeStartError::BadConfig)?;
        let without_credential = Arc::new(Grant::full(config.tenant.clone(), CLIENT));
        let grants = Self { sources: Arc::new(sources), without_credential, issuers, known: Arc::default() };
        grants.replace(&found).map_err(EdgeStartError::BadConfig)?;
        Ok(grants)
    }

    /// Whether clients must show a credential.
    pub(crate) fn are_needed(&self) -> bool {
        let Sources { token, tokens_dir, keys_file, .. } = &*self.sources;
        token.is_some() || tokens_dir.is_some() || keys_file.is_some() || !self.issuers.is_empty()
    }

    /// Returns the issuers of access tokens.
    pub fn issuers(&self) -> &Issuers {
        &self.issuers
    }

    /// Returns the grant of a credential, or the reason why it grants nothing.
    pub(super) async fn authenticate(&self, presented: Option<&str>) -> Result<Arc<Grant>, ApiError> {
        let presented = presented.ok_or_else(|| refuse(None))?;
        let grant = match self.find(presented) {
            Some(grant) => grant,
            None if self.issuers.is_token(presented) => self.issuers.authenticate(presented).await?,
            None => return Err(refuse(Some(presented))),
        };
        grant.check_valid()?;
        Ok(grant)
    }

    /// Returns the grant of a client that needs no credential.
    pub(crate) fn without_credential(&self) -> Arc<Grant> {
        self.without_credential.clone()
    }

    /// Finds the grant of a token or an API key.
    fn find(&self, presented: &str) -> Option<Arc<Grant>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        // All are compared, in constant time, so that the time reveals nothing.
        let matches =
            known.tokens.iter().filter(|(token, _)| token.expose().as_bytes().ct_eq(presented.as_bytes()).into());
        let token = matches.fold(None, |_, (_, grant)| Some(grant.clone()));
        token.or_else(|| known.keys.find(presented))
    }

    /// Reads the files again and again, until the task ends. While they cannot be read, the last credentials stay valid.
    pub async fn follow(self, readiness: Readiness) {
        if self.sources.tokens_dir.is_none() && self.sources.keys_file.is_none() {
            return;
        }
        let sources = self.sources.clone();
        let take = move |found: &Found| self.replace(found);
        contents::follow(move || sources.read(), take, move |reason| readiness.warn(reason)).await;
    }

    /// Takes over what was read. A grant whose credential is gone is revoked.
    fn replace(&self, found: &Found) -> Result<(), String> {
        let Sources { tenant, keys_file, limits, .. } = &*self.sources;
        let parsed = match (&found.keys, keys_file) {
            (Some(text), Some(path)) => {
                let file = TextFile { origin: path.display().to_string(), text: text.clone() };
                Some(KeysFile::parse(&file).map_err(|error| format!("edge.keys_file: {error}"))?)
            }
            (None | Some(_), _) => None,
        };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut known.tokens);
        for token in &found.tokens {
            let kept = before.iter().position(|(known, _)| known == token).map(|at| before.swap_remove(at));
            let kept = kept.unwrap_or_else(|| (token.clone(), Arc::new(Grant::full(tenant.clone(), CLIENT))));
            known.tokens.push(kept);
        }
        for (_, grant) in before {
            grant.revoked.cancel();
        }
        if let Some(file) = parsed {
            let administrators = file.administrators();
            if !administrators.is_empty() {
                tracing::info!(
                    keys = administrators.join(", "),
                    "keys with the scope administer and without operate do not see the fleet: add operate where it is meant"
                );
            }
            known.keys.replace(&file, tenant, limits);
        }
        tracing::info!(tokens = known.tokens.len(), keys = known.keys.len(), "the credentials of clients were read");
        Ok(())
    }
}

impl Sources {
    fn read(&self) -> Result<Found, String> {
        let mut tokens: Vec<Secret> = self.token.iter().cloned().collect();
        if let Some(directory) = &self.tokens_dir {
            tokens.extend(tokens::read(directory)?);
        }
        let keys = self.keys_file.as_deref().map(read_keys).transpose()?;
        Ok(Found { tokens, keys })
    }
}

fn read_keys(path: &Path) -> Result<String, String> {
    let failed = |why: &dyn std::fmt::Display| format!("edge.keys_file: {}: {why}", path.display());
    let size = std::fs::metadata(path).map_err(|error| failed(&error))?.len();
    if size > KEYS_BYTES_MAX {
        return Err(failed(&format!("it has {size} bytes, at most {KEYS_BYTES_MAX} are allowed")));
    }
    std::fs::read_to_string(path).map_err(|error| failed(&error))
}

/// Error for a credential that grants nothing. It repeats nothing of the credential.
fn refuse(presented: Option<&str>) -> ApiError {
    let why = match presented {
        None => "no credential",
        Some(text) if text.starts_with(api_key::PREFIX) && !api_key::is_well_formed(text) => {
            "the API key is incomplete or mistyped"
        }
        Some(_) => "the credential is not known",
    };
    let message = format!("{why}: send `Authorization: Bearer <API key, access token or edge.token>`");
    ApiError::new(ErrorCode::Unauthorized, message)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use contract::tool::sha256_hex;
    use service::contents::LOOK_EVERY;

    use configuration::api_key::generate_key;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn changed_directory_is_followed_and_a_broken_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        fs::write(&file, "old").unwrap();
        let config = EdgeConfig { tokens_dir: Some(directory.path().to_owned()), ..EdgeConfig::default() };
        let (grants, readiness) = (Grants::new(&config).unwrap(), Readiness::new("edge"));
        assert!(grants.are_needed());
        let old = grants.find("old").unwrap();
        let mut following = tokio::task::JoinSet::new();
        following.spawn(grants.clone().follow(readiness.clone()));
        fs::write(directory.path().join("next"), "new").unwrap();
        while grants.find("new").is_none() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        assert!(grants.find("old").is_some(), "both are valid at the same time");
        fs::write(&file, "").unwrap();
        while readiness.warnings().next().is_none() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        assert!(grants.find("old").is_some() && grants.find("new").is_some());
        fs::remove_file(&file).unwrap();
        old.revoked.cancelled().await;
        assert!(grants.find("old").is_none() && grants.find("new").is_some());
        while readiness.warnings().next().is_some() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn key_removed_from_the_file_is_revoked_and_a_broken_file_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (file, key) = (directory.path().join("keys.yaml"), generate_key());
        let entry = format!("keys: [{{id: ci, sha256: {}, scopes: [run], tenant: acme}}]", sha256_hex(key.as_bytes()));
        fs::write(&file, &entry).unwrap();
        let config = EdgeConfig { keys_file: Some(file.clone()), ..EdgeConfig::default() };
        let (grants, readiness) = (Grants::new(&config).unwrap(), Readiness::new("edge"));
        let grant = grants.find(&key).unwrap();
        assert_eq!((grant.tenant.as_str(), grant.subject.as_str()), ("acme", "ci"));
        let mut following = tokio::task::JoinSet::new();
        following.spawn(grants.clone().follow(readiness.clone()));
        fs::write(&file, "keys: [{id: ci}]").unwrap();
        while readiness.warnings().next().is_none() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        assert!(grants.find(&key).is_some() && !grant.revoked.is_cancelled());
        fs::write(&file, "keys: []").unwrap();
        grant.revoked.cancelled().await;
        assert!(grants.find(&key).is_none());
    }
}
